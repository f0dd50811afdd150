"""`chainrule compress FILE --run RUN`: lossless compression by a model's likelihood; and `decompress`."""

from pathlib import Path
from time import monotonic
from typing import Any

from chainrule._app.cli.signature import verb_for
from chainrule._app.tasks.capabilities import Compresses
from chainrule._app.tasks.display import Switch, dump_json, progress_bars, size_of
from chainrule._app.tasks.task import Task
from chainrule._printing import one_line


@verb_for(Compresses)
def compress(
    file: Path,
    /,
    *,
    run: Task[Any] | None = None,
    out: Path | None = None,
    verify: bool = True,
    portable: Switch = False,
    json: Switch = False,
) -> None:
    """Compress a file or a folder without loss, to about −log₂ p bits under a model.

    With a run, its model encodes the file. Decompression then needs the same run, on a processor that rounds alike.
    Without a run, an adaptive model learns while it reads, and decompression needs nothing else. If lzma or plain
    storage gives a smaller file, chainrule writes that. The result is decoded and compared before it is written.

    Args:
        file: A file of any kind, or a folder.
        run: Run directory of a model for such files.
        out: File to write; FILE.chain by default.
        verify: Decode the result and compare before writing it.
        portable: Compute the run's model in arithmetic that is bit-identical on every processor; several times slower.
            Without a run the arithmetic is always portable.
        json: Print one JSON object.
    """
    from chainrule._app.tasks.bundle import named, read_bundle, refuse_taken
    from chainrule._app.tasks.compression import compress_data
    from chainrule.data._atomic import write_bytes

    index = out or named(file).with_name(f"{named(file).name}.chain")
    refuse_taken(index)
    bundle, began = read_bundle(file), monotonic()
    with progress_bars() as progress:
        compressed = compress_data(
            bundle.data, bundle.described, run, progress=progress, verify=verify, portable=portable
        )
    write_bytes(index, compressed.data)
    seconds, size, written = monotonic() - began, len(bundle.data), len(compressed.data)
    values = {
        "file": str(file),
        "out": str(index),
        "method": compressed.method,
        "bytes": size,
        "compressed_bytes": written,
        "elements": compressed.elements,
        "unit": compressed.unit,
        "bits_per_element": 8 * written / compressed.elements if compressed.elements else None,
        "bits_per_byte": 8 * written / size if size else None,
        "seconds": seconds,
        "verified": verify,
    }
    if json:
        print(dump_json(values))
        return
    rate = f", {8 * written / compressed.elements:.4f} bits a {compressed.unit}" if compressed.elements else ""
    if compressed.unit != "byte" and size:
        rate += f", {8 * written / size:.4f} bits a byte"
    checked = "read back and compared" if verify else "not read back"
    print(f"{one_line(str(index))}: {size_of(size)} in {size_of(written)}{rate}; {checked}; {seconds:.1f} s")
    if compressed.note:
        print(compressed.note)


@verb_for(Compresses)
def decompress(
    file: Path,
    /,
    *,
    run: Task[Any] | None = None,
    out: Path | None = None,
    salvage: Switch = False,
    json: Switch = False,
) -> None:
    """Restore a file that `chainrule compress` wrote: the same bytes, or nothing.

    Args:
        file: The .chain file.
        run: The run that compressed it, if any.
        out: File or folder to write; its original name in the current folder by default.
        salvage: Write the undamaged part of a damaged file.
        json: Print one JSON object.
    """
    from chainrule._app.tasks.bundle import bundle_name, refuse_taken, write_bundle
    from chainrule._app.tasks.compression import check_header, decompress_data, describe_damage
    from chainrule.coding._container import read_container
    from chainrule.data._text import refuse_device

    if file.is_dir():
        raise ValueError(f"{file}: expected a .chain file, got a directory")
    refuse_device(file)
    container, began = read_container(file.read_bytes(), str(file)), monotonic()
    described = container.header
    check_header(container, str(file))
    name = bundle_name(described)
    target = out or Path(name)
    refuse_taken(target)
    with progress_bars() as progress:
        bundle = decompress_data(container, str(file), run, progress=progress, salvage=salvage)
    write_bundle(target, bundle)
    values = {
        "file": str(file),
        "out": str(target),
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
        else f"{describe_damage(container)}: what is left of {size_of(size)}"
    )
    print(f"{one_line(str(target))}: {size_of(len(bundle.data))}; {checked}; {values['seconds']:.1f} s")
