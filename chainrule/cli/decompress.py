"""`chainrule decompress FILE.chain`: the file that `chainrule compress` was given."""

from pathlib import Path
from time import monotonic
from typing import Any

from chainrule.cli.offered import offered
from chainrule.cli.working import progress_bars
from chainrule.tasks.abilities import Compresses
from chainrule.tasks.display import Switch, dump_json, one_line, size_of
from chainrule.tasks.task import Task


@offered(Compresses)
def decompress(
    file: Path,
    /,
    *,
    run: Task[Any] | None = None,
    out: Path | None = None,
    salvage: Switch = False,
    json: Switch = False,
) -> None:
    """Read a file that `chainrule compress` wrote: the same bytes, or nothing.

    Args:
        file: The .chain file.
        run: The run that wrote it, where one did.
        out: The file or folder to write; the name it had, in this folder, if not given.
        salvage: Write the undamaged part of a damaged file.
        json: Print one JSON object.
    """
    from chainrule.coding.container import read_container
    from chainrule.tasks.bundle import bundle_name, refuse_taken, write_bundle
    from chainrule.tasks.compression import decompress_data, tell_damage

    if file.is_dir():
        raise ValueError(f"{file}: expected a .chain file, got a directory")
    container, began = read_container(file.read_bytes(), str(file)), monotonic()
    described = container.header
    place = out or Path(bundle_name(described))
    refuse_taken(place)
    with progress_bars() as progress:
        bundle = decompress_data(container, str(file), run, progress=progress, salvage=salvage)
    write_bundle(place, bundle)
    values = {
        "file": str(file),
        "out": str(place),
        "bytes": len(bundle.data),
        "method": described["method"],
        "damaged_parts": container.damaged,
        "seconds": monotonic() - began,
    }
    if json:
        print(dump_json(values))
        return
    size = sum(size for _, size in described["files"])
    checked = (
        "its SHA-256 is right"
        if not container.damaged
        else f"{tell_damage(container)}: what is left of {size_of(size)}"
    )
    print(f"{one_line(str(place))}: {size_of(len(bundle.data))}; {checked}; {values['seconds']:.1f} s")
