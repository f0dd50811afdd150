"""Files that are whole or not there, whatever happens while they are written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what will become `path`, in one indivisible move when the block ends without an error.

    The new content is on the disk before the move, and the move before the return; a process killed at any moment
    leaves the old file or the new one. What a killed process leaves half-written lies in the folder `.partial` beside
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
