"""A file or a folder as one string of bytes, and back."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from chainrule.data.atomic import write_bytes


@dataclass(frozen=True)
class Bundle:
    """The files of a path, one after the other.

    Args:
        data: their bytes.
        described: their names and sizes, for the header of a `.chain` file.
    """

    data: bytes
    described: dict[str, Any]


def read_bundle(path: Path) -> Bundle:
    """Read a file, or all files of a folder, in the order of their names.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the folder holds no file, or something that is no regular file.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_file():
        data = path.read_bytes()
        return Bundle(data, {"files": [[path.name, len(data)]]})
    if not path.is_dir():
        raise ValueError(
            f"{path}: expected a file or a folder, got a device or pipe: write its content to a file first"
        )
    files = sorted(found for found in path.rglob("*") if not found.is_dir() or found.is_symlink())
    if wrong := [found for found in files if found.is_symlink() or not found.is_file()]:
        raise ValueError(f"{wrong[0]}: expected regular files in the folder, got a link, device or pipe: leave it out")
    if not files:
        raise ValueError(f"{path}: expected a folder with files, got an empty one")
    parts = [found.read_bytes() for found in files]
    names = [[found.relative_to(path).as_posix(), len(part)] for found, part in zip(files, parts, strict=True)]
    return Bundle(b"".join(parts), {"folder": path.resolve().name, "files": names})


def cut(data: bytes, files: list[tuple[str, int]]) -> list[bytes]:
    """The bytes of each file, by their names and sizes.

    >>> cut(b"abc", [("one", 1), ("two", 2)])
    [b'a', b'bc']
    """
    ends = [0, *accumulate(size for _, size in files)]
    return [data[start:end] for start, end in pairwise(ends)]


def bundle_name(described: dict[str, Any]) -> str:
    """The name of the file, or of the folder.

    Raises:
        ValueError: a name would lead out of the folder that is written to.
    """
    for name in [described.get("folder", "x"), *(name for name, _ in described["files"])]:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise ValueError(f"expected names below one folder, got {name!r}: the file was not made by chainrule")
    if "folder" not in described and "/" in described["files"][0][0]:
        raise ValueError("expected the name of a file, got a path: the file was not made by chainrule")
    return str(described.get("folder", described["files"][0][0]))


def refuse_taken(path: Path) -> None:
    """Raise FileExistsError where something is at `path`, FileNotFoundError where no folder is to hold it."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path}: exists already: remove it, or name another file with --out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder")


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write the file or the folder, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    if "folder" not in bundle.described:
        write_bytes(path, bundle.data)
        return
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        for (name, _), content in zip(
            bundle.described["files"], cut(bundle.data, bundle.described["files"]), strict=True
        ):
            place = partial / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        partial.chmod(0o777 & ~_umask())
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
