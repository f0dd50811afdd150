"""Files that are written to URLs: on this machine first, and sent, each whole, when all of them are complete."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from chainrule.option_error import OptionError
from chainrule_app.printing import is_url, shown, url_of
from chainrule_app.readers.copies import WORK, folder, root, use
from chainrule_app.readers.remote import WEB, Place

_LAST = "config.json"  # of a folder: whoever finds it finds the rest


@contextmanager
def outgoing() -> Iterator[Callable[[str | Path, str], Path]]:
    """Yield a function that takes the path or URL of an option, and returns the path to write to.

    What was written for URLs is sent at the end of the block, and dropped after an error in it.
    """
    tree = f"{WORK}/.{token_hex(8)}"
    places = dict[Path, Place]()

    def local(target: str | Path, name: str = "out") -> Path:
        if not is_url(target):
            return Path(target)
        if str(target).lower().startswith(tuple(f"{scheme}:" for scheme in WEB)):
            raise OptionError(name, f"{shown(target)} is read-only", "name a path, or a storage such as s3://")
        place = Place.of(target, tree)
        place.copy.parent.mkdir(parents=True, exist_ok=True)
        use(folder(tree))
        places[place.copy] = place
        return place.copy

    try:
        yield local
    except BaseException:
        shutil.rmtree(folder(tree), ignore_errors=True)
        raise
    for path, place in places.items():
        try:
            _send(path, place)
        except (OSError, ValueError) as error:
            raise ValueError(f"{error}; what was written is in {root() / WORK}") from None
    shutil.rmtree(folder(tree), ignore_errors=True)


def _send(path: Path, place: Place) -> None:
    """Send a file or folder, and files whose names have a number more than that of the file."""
    start = place.name.rstrip("/").removesuffix(path.name)
    written = [path, *path.parent.glob(f"{path.stem}-[0-9]*{path.suffix}")]
    files = [file for each in written for file in (each.rglob("*") if each.is_dir() else [each]) if file.is_file()]
    for file in sorted(files, key=lambda file: (file.name == _LAST, file)):
        target = place.part(start + file.relative_to(path.parent).as_posix())
        target.ask(partial(_put, file, target.name))


def _put(file: Path, name: str, fs: Any) -> None:
    fs.put_file(str(file), name)


def is_there(path: Path) -> bool:
    """Return whether there is something at a path, or at the URL whose place it takes."""
    if path.exists() or path.is_symlink():
        return True
    if (url := url_of(path)) is None:
        return False
    with suppress(FileNotFoundError):
        return bool(Place.of(url).info())
    return False
