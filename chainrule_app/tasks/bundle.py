"""A file or a folder as one string of bytes, and back."""

import tempfile
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from chainrule.files import write_bytes
from chainrule_app.readers.text import refuse_stdin


@dataclass(frozen=True)
class Bundle:
    """Files of a path, concatenated."""

    data: bytes
    described: dict[str, Any]  # names and sizes, for the header of a .chain file


def read_bundle(path: Path) -> Bundle:
    """Read a file, or all files of a folder sorted by name."""
    if not path.exists():
        refuse_stdin(path)
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_file():
        data = path.read_bytes()
        _refuse_name(path, path.name)
        return Bundle(data, {"files": [[path.name, len(data)]]})
    if not path.is_dir():
        raise ValueError(
            f"{path}: expected a file or a folder, got a device or pipe: write its content to a file first"
        )
    inside = sorted(path.rglob("*"))
    files = [entry for entry in inside if not entry.is_dir() or entry.is_symlink()]
    if wrong := [entry for entry in files if entry.is_symlink() or not entry.is_file()]:
        raise ValueError(f"{wrong[0]}: expected regular files in the folder, got a link, device or pipe: leave it out")
    if not files:
        raise ValueError(f"{path}: expected a folder with files, got an empty one")
    own = named(path).name
    _refuse_name(path, own)
    empty = [entry for entry in inside if entry.is_dir() and not any(entry.iterdir())]
    for entry in (*files, *empty):
        _refuse_name(entry, entry.relative_to(path).as_posix())
    parts = [entry.read_bytes() for entry in files]
    names = [[entry.relative_to(path).as_posix(), len(part)] for entry, part in zip(files, parts, strict=True)]
    folders = {"folders": [entry.relative_to(path).as_posix() for entry in empty]} if empty else {}
    return Bundle(b"".join(parts), {"folder": own, "files": names, **folders})


def named(path: Path) -> Path:
    """Resolve `.` and `..`; leave other paths alone."""
    whole = path if path.name not in ("", "..") else path.resolve()
    if not whole.name:
        raise ValueError(f"{path}: expected a file or a folder with a name, got the root: name one below it")
    return whole


def _refuse_name(path: Path, name: str) -> None:
    if not _leads_below(name):
        raise ValueError(
            f"{path}: expected a name without a backslash, which another system reads as a path: rename it"
        )


def cut(data: bytes, files: list[tuple[str, int]]) -> list[bytes]:
    """Split bytes into files by their sizes."""
    ends = [0, *accumulate(size for _, size in files)]
    return [data[start:end] for start, end in pairwise(ends)]


def bundle_name(described: dict[str, Any]) -> str:
    """Return the name of the file or folder; check that all names are safe to write."""
    names = [name for name, _ in described["files"]]
    own = str(described.get("folder", names[0]))
    for name in [own, *names, *described.get("folders", [])]:
        if not _leads_below(name):
            raise ValueError(f"expected names below one folder, got {name!r}: the file was not made by chainrule")
    if "/" in own:
        raise ValueError("expected the name of a file or a folder, got a path: the file was not made by chainrule")
    return own


def _leads_below(name: str) -> bool:
    """Tell if a joined name stays below its folder, on every system."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\\" not in name and "\0" not in name


def refuse_taken(path: Path) -> None:
    """Raise FileExistsError if `path` exists, FileNotFoundError if its folder does not."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path}: already exists: remove it, or name another file with --out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder")


def write_bundle(path: Path, bundle: Bundle) -> None:
    bundle_name(bundle.described)
    if "folder" not in bundle.described:
        write_bytes(path, bundle.data)
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as parent:
        partial = Path(parent) / path.name
        partial.mkdir()
        files = bundle.described["files"]
        for (name, _), content in zip(files, cut(bundle.data, files), strict=True):
            target = partial / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        for name in bundle.described.get("folders", []):
            (partial / name).mkdir(parents=True, exist_ok=True)
        partial.rename(path)
