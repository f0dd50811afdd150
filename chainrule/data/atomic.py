"""Files that are either whole or not there: the last file of a folder is the one that says the folder is complete."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON so that a reader finds the old file or the whole new one, whatever happens meanwhile."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8, as `write_json` does; what no UTF-8 can hold becomes a question mark."""
    write_bytes(path, content.encode("utf-8", "replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` as it is, as `write_json` does.

    Raises:
        OSError: the file cannot be written; the old one is as it was.
    """
    try:
        _replace(path, content)
    except OSError as error:  # names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # what open() would have given it; a temporary file is private
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _flush_to_disk(path.parent)  # the rename itself must survive a power cut


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; `ValueError` in one line where the file holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got something else ({error}); the file is damaged") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}; the file is damaged")
    return content


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what will become `path`, in one indivisible move when the block ends without an error.

    The new content is on the disk before the move, and the move before the return; a process killed at any moment
    leaves the old file or the new one. A half-written file of a killed process lies in the folder `.partial` next to
    the file, which the next write clears.

    Raises:
        OSError: the disk is full or not writable; the old file is as it was.
    """
    folder = path.parent / ".partial"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        partial = folder / path.name
        partial.touch()
        mode = partial.stat().st_mode  # what the umask gives; safetensors makes its files private
        yield partial
        partial.chmod(mode)
        _flush_to_disk(partial)
        os.replace(partial, path)
        _flush_to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        state = "the file before it is intact" if path.exists() else "nothing was written"
        remedy = "free space or choose another directory"
        raise OSError(f"{path}: cannot be written ({reason}); {state}: {remedy}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
