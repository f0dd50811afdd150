"""One process at a time trains in a run directory."""

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

LOCK = ".lock"
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory for the length of the block; the directory is made if it is missing.

    The lock belongs to the open file, so the system frees it however the process ends. A file left by a killed process
    is taken over. Directories made here that the block leaves empty are removed again.

    Raises:
        FileExistsError: another process holds the lock; the message says which one.
        OSError: the directory cannot be written to.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = _acquire(path / LOCK, path)
        try:
            yield
        finally:
            _release(descriptor, path / LOCK)
    finally:
        with suppress(OSError):  # not empty: the run is there
            for folder in made:
                folder.rmdir()


def _acquire(file: Path, run: Path) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if not _try_lock(descriptor):
                raise FileExistsError(f"--out {run}: {_holder(descriptor)} is at work there: wait for it, or stop it")
            if _is_same(descriptor, file):  # else its holder removed the file between our two calls
                _write_holder(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _release(descriptor: int, file: Path) -> None:
    with suppress(OSError):  # while it is held, so that nobody's newer file is removed; Windows removes no open file
        if _is_same(descriptor, file):
            file.unlink()
    os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    _BEYOND = 1 << 30  # the byte that is locked: one that no reader of the file needs

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        """Whether the lock is held now; true on file systems that have no locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        return True


def _is_same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(" ", "seconds"),
    }
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(holder).encode())


def _holder(descriptor: int) -> str:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = json.loads(os.read(descriptor, 1 << 12))
        return f"process {int(holder['pid'])} on {holder['host']!s:.64} (since {holder['since']!s:.32})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # not yet written, or damaged
        return "another process"
