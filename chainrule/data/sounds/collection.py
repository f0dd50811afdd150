"""The sound files of a folder, of an archive, or a single one."""

import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from weakref import finalize

ENDINGS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
TARS = (".tar.gz", ".tgz", ".tar")
ARCHIVES = (*TARS, ".zip")
_CHUNK = 1 << 20
_LARGEST = 1 << 28  # bytes of a file in an archive, which is held in memory while it is read
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)  # and encrypted, unknown


@dataclass(frozen=True)
class SoundFile:
    """One file.

    Attributes:
        name: its path inside the collection, with `/`; the file's own name where it is alone.
        label: the name for errors.
        open: gives the bytes, to be closed.
    """

    name: str
    label: str
    open: Callable[[], BinaryIO]


class Collection:
    """All sounds below a folder, in the order of their names; those of a tar or zip archive, in its order; or one file.

    A sound is known by its ending: wav, flac, ogg, mp3, aif or aiff. Hidden files are left out. A file of an archive is
    held in memory while it is read.

    Args:
        path: of the folder, the archive or the file.

    Raises:
        FileNotFoundError: there is nothing of that name.
        ValueError: it holds no sound, or is no archive.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._tar: tarfile.TarFile | None = None
        if not self.path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder: expected sounds")
        name = self.path.name.lower()
        if self.path.is_dir():
            self.files = sorted(self._of_folder(), key=lambda file: file.name)
        elif name.endswith(ARCHIVES):
            try:
                self.files = list(self._of_tar() if name.endswith(TARS) else self._of_zip())
            except _DAMAGED as error:
                raise ValueError(f"{path}: no archive that can be read ({error})") from None
        elif name.endswith(ENDINGS):
            self.files = [SoundFile(self.path.name, str(path), partial(_read, self.path))]
        else:
            raise ValueError(
                f"{path}: expected a sound ({', '.join(ENDINGS)}), a folder of sounds, or an archive of them "
                f"({', '.join(ARCHIVES)})"
            )
        if not self.files:
            raise ValueError(f"{path}: expected sounds ({', '.join(ENDINGS)}), found none")

    def fingerprint(self) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256` of all names and contents, to tell later if they are the same."""
        digest, size = hashlib.sha256(), 0
        for file in self.files:
            digest.update(f"{file.name}\0".encode())
            with file.open() as content:
                while chunk := content.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
        return {"name": self.path.resolve().name, "bytes": size, "sha256": digest.hexdigest()}

    def _of_folder(self) -> Iterator[SoundFile]:
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if _is_sound(name) and path.is_file():
                yield SoundFile(name, str(path), partial(_read, path))

    def _of_tar(self) -> Iterator[SoundFile]:
        # Kept open, as each opening would read the archive from its beginning.
        self._tar = tarfile.open(self.path)  # noqa: SIM115 - closed when the collection goes
        finalize(self, self._tar.close)
        for member in self._tar:
            if member.isfile() and _is_sound(member.name):
                yield SoundFile(member.name, f"{self.path}, {member.name}", partial(self._from_tar, member))

    def _from_tar(self, member: tarfile.TarInfo) -> BinaryIO:
        assert self._tar is not None
        _refuse_large(f"{self.path}, {member.name}", member.size)
        try:
            return io.BytesIO(cast(BinaryIO, self._tar.extractfile(member)).read())
        except _DAMAGED as error:
            raise _damaged(f"{self.path}, {member.name}", error) from None

    def _of_zip(self) -> Iterator[SoundFile]:
        with zipfile.ZipFile(self.path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
        for name in filter(_is_sound, names):
            yield SoundFile(name, f"{self.path}, {name}", partial(self._from_zip, name))

    def _from_zip(self, name: str) -> BinaryIO:
        with zipfile.ZipFile(self.path) as archive:
            _refuse_large(f"{self.path}, {name}", archive.getinfo(name).file_size)
            try:
                return io.BytesIO(archive.read(name))
            except _DAMAGED as error:
                raise _damaged(f"{self.path}, {name}", error) from None


def is_sounds(path: str | Path) -> bool:
    """Whether a path is meant as sounds: a sound file, or a folder or an archive with more sounds than other files."""
    path = Path(path)
    if path.name.lower().endswith(ENDINGS):
        return True
    if path.is_dir():
        names = [found.name for found in path.rglob("*") if found.is_file() and not found.name.startswith(".")]
    elif path.is_file() and path.name.lower().endswith(ARCHIVES):
        try:
            names = [file.name for file in Collection(path).files]
        except ValueError:
            return False
    else:
        return False
    sounds = sum(map(_is_sound, names))
    return sounds > len(names) - sounds


def _read(path: Path) -> BinaryIO:
    return path.open("rb")


def _refuse_large(label: str, size: int) -> None:
    if size > _LARGEST:
        raise ValueError(
            f"{label}: expected at most {_LARGEST >> 20} MiB in an archive, got {size >> 20}: unpack it into a folder"
        )


def _damaged(label: str, error: Exception) -> ValueError:
    return ValueError(f"{label}: cannot be read ({error}): restore the archive from a copy")


def _is_sound(name: str) -> bool:
    hidden = any(part.startswith(".") and part != "." for part in name.split("/"))
    return name.lower().endswith(ENDINGS) and not hidden
