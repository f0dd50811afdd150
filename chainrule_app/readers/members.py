"""The files of one kind in a folder or an archive, or a single file."""

import hashlib
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, TypeVar, cast
from weakref import finalize

from chainrule.files import refuse_device
from chainrule.option_error import UserError, option, raw_text
from chainrule_app.readers.origin import DataSource, Origin, no_such_file, read_chunks, refuse_stdin

TARS = (".tar.gz", ".tgz", ".tar")
ARCHIVES = (*TARS, ".zip")
_CHUNK = 1 << 20
LARGEST = 1 << 28  # bytes of a file in an archive, which is held in memory while it is read
_MOST_ENTRIES = 1 << 18  # of an archive, whose list is held in memory and takes long to read
_LABEL, _LONGEST_LABEL = ".cls", 200  # the ending of labels in a WebDataset; bytes
_MOST_ATTRIBUTES = 1000  # that a tar archive gives to all of its files
_LONGEST_RECORD = 1 << 16  # bytes of a header in a tar archive that extends another: attributes, long names
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)  # and encrypted, unknown


@dataclass(frozen=True)
class Member:
    """One file."""

    name: str  # its path inside the folder or archive, with `/`; the file's own name where it is alone
    label: str  # the name for errors
    open: Callable[[], BinaryIO]  # gives the bytes, to be closed

    def digest(self) -> bytes:
        """Return the SHA-256 of the content."""
        with self.open() as content:
            return hashlib.file_digest(cast(io.BufferedReader, content), "sha256").digest()

    def skipped(self, error: ValueError) -> dict[str, str]:
        """Return the record of a bad file, without its folders, which say something of the machine."""
        return {"file": self.name, "reason": str(error).replace(self.label, self.name)}


class FileSet(DataSource):
    """Several files and folders, named as in the folder that holds them all."""

    def __init__(self, paths: Sequence[str]):
        named = list(map(Path, paths))
        for path in named:
            if not path.exists():
                raise no_such_file(path)
        shared = Path(os.path.commonpath([(path if path.is_dir() else path.parent).resolve() for path in named]))
        self.path = shared if any(path.is_absolute() for path in named) else Path(os.path.relpath(shared))
        self.origin = Origin(str(self.path))
        files = (file for path in named for file in (path.rglob("*") if path.is_dir() else [path]))
        self.files = {
            (file.parent.resolve() / file.name).relative_to(shared).as_posix(): file for file in files if file.is_file()
        }

    def fingerprint(self) -> dict[str, Any]:
        return Members(self, ("",), "file").fingerprint()


class Members:
    """All visible files of one kind in a folder (by name) or an archive (in its order), a set, or a single file."""

    def __init__(self, path: str | Path | FileSet, endings: tuple[str, ...], noun: str):
        self._endings = endings
        self.path = path.path if isinstance(path, FileSet) else Path(path)
        if not self.path.exists():
            refuse_stdin(self.path)
            raise no_such_file(self.path, f"file or folder: expected {noun}s")
        refuse_device(self.path)
        name = self.path.name.lower()
        packed = list(path.files.values()) if isinstance(path, FileSet) else [self.path]
        if all(file.name.lower().endswith(ARCHIVES) and file.is_file() for file in packed):
            self.files: list[Member] = []
            for file in packed:
                try:
                    self.files += self._of_tar(file) if file.name.lower().endswith(TARS) else self._of_zip(file)
                except _DAMAGED as error:
                    raise ValueError(f"{file}: not a readable archive ({error})") from None
        elif self.path.is_dir():
            named = path.files.items() if isinstance(path, FileSet) else self._of_folder()
            found = (Member(name, str(file), partial(_opened, file)) for name, file in named if self._is_one(name))
            self.files = sorted(found, key=lambda file: file.name)
        elif name.endswith(endings):
            self.files = [Member(self.path.name, str(path), partial(_opened, self.path))]
        else:
            raise ValueError(
                f"{path}: expected a {noun} ({', '.join(endings)}), a folder of {noun}s, or an archive of them "
                f"({', '.join(ARCHIVES)})"
            )
        if not self.files:
            raise ValueError(f"{path}: expected {noun}s ({', '.join(endings)}), found none")

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

    def part(self, name: str) -> list[Member]:
        """Return the files of "train" or "valid" where folders are so called, see `split_of`; else all for "train"."""
        split = split_of(ways_of(self.files, archive=self.path.is_file()))
        return [file for file in self.files if split.get(file.name, "train") == name]

    def _is_one(self, name: str) -> bool:
        return is_visible(name, self._endings)

    def _of_folder(self) -> Iterator[tuple[str, Path]]:
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if self._is_one(name) and path.is_file():
                yield name, path

    # Archives stay open: each opening would read a tar archive from its beginning, and the list of a zip file.

    def _of_tar(self, path: Path) -> Iterator[Member]:
        """Yield the files of a tar archive; one KEY.jpg with its label in KEY.cls (WebDataset) is in a folder of it."""
        archive = _open_tar(path)
        finalize(self, archive.close)
        found, labels = list[tarfile.TarInfo](), dict[str, str]()
        for member in _listed_tar(archive):
            if member.isfile() and self._is_one(member.name):
                found.append(member)
            elif member.isfile() and member.name.endswith(_LABEL) and member.size <= _LONGEST_LABEL:
                label = _of_tar(archive, member).decode("utf-8", "replace").strip()
                labels[member.name.removesuffix(_LABEL)] = label.replace("/", "-")
        for member in found:
            key, name = member.name.rsplit(".", 1)[0], member.name
            if key in labels:
                name = f"{labels[key]}/{name.rpartition('/')[2]}"
            yield self._member(path, name, member.size, partial(_of_tar, archive, member))

    def _of_zip(self, path: Path) -> Iterator[Member]:
        archive = zipfile.ZipFile(path)
        finalize(self, archive.close)
        for info in _listed(archive.infolist()):
            if not info.is_dir() and self._is_one(info.filename):
                yield self._member(path, info.filename, info.file_size, partial(_of_zip, archive, info))

    def _member(self, path: Path, name: str, size: int, read: Callable[[], bytes]) -> Member:
        return Member(name, f"{path}, {name}", partial(self._content, f"{path}, {name}", size, read))

    def _content(self, label: str, size: int, read: Callable[[], bytes]) -> BinaryIO:
        """Return the content of a member; a bound method keeps the archive open while a member exists."""
        if size > LARGEST:
            raise ValueError(
                f"{label}: {size >> 20} MiB, more than the limit of {LARGEST >> 20} for a file in an archive: unpack "
                "the archive into a folder"
            )
        try:
            return io.BytesIO(read())
        except _DAMAGED as error:
            raise ValueError(f"{label}: cannot be read ({error}): restore the archive from a copy") from None


_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def ways_of(files: Sequence[Member], *, archive: bool) -> dict[str, list[str]]:
    """Return the folders and the name of each file, without the folder that was packed."""
    ways = {file.name: file.name.removeprefix("./").split("/") for file in files}
    if archive and len({way[0] for way in ways.values()}) == 1 and min(map(len, ways.values())) > 2:
        return {name: way[1:] for name, way in ways.items()}
    return ways


def split_of(ways: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the part of each file, where all lie in folders such as train, val and test; else nothing."""
    parts = {name: _PARTS.get(way[0].lower(), "") if len(way) > 1 else "" for name, way in ways.items()}
    found = set(parts.values())
    return parts if "train" in found and len(found) > 1 and "" not in found else {}


Content = TypeVar("Content")


class _Readable(Protocol):
    """A file, or one item in memory."""

    @property
    def name(self) -> str: ...

    def skipped(self, error: ValueError) -> dict[str, str]: ...


File = TypeVar("File", bound=_Readable)


def read_each(
    files: Iterable[File], read: Callable[[File], Content], skipped: list[dict[str, str]], *, skip_bad: bool
) -> Iterator[tuple[File, Content]]:
    """Yield each file with its content; `skip_bad` lists bad files in `skipped` instead of raising their errors."""
    for file in files:
        try:
            content = read(file)
        except ValueError as error:
            if not skip_bad:
                raise UserError(f"{raw_text(error)}; {option('skip_bad')} leaves such files out") from None
            skipped.append(file.skipped(error))
        else:
            yield file, content


def file_names(path: Path) -> Iterator[str]:
    """Yield the names of the visible files of a folder or an archive; nothing if it is neither or damaged."""
    kind = path.name.lower() if path.is_file() else ""
    try:
        if path.is_dir():
            names = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
            yield from (name for name in names if is_visible(name, ("",)))
        elif kind.endswith(TARS):
            with _open_tar(path) as tar:
                yield from (
                    member.name for member in _listed_tar(tar) if member.isfile() and is_visible(member.name, ("",))
                )
        elif kind.endswith(ARCHIVES):
            with zipfile.ZipFile(path) as archive:
                yield from (name for name in archive.namelist() if is_visible(name, ("",)) and name[-1] != "/")
    except _DAMAGED:
        return


def is_visible(name: str, endings: tuple[str, ...]) -> bool:
    """Return whether a path has one of some endings, and neither it nor a folder of it is hidden."""
    hidden = any(part.startswith(".") and part != "." for part in name.split("/"))
    return name.lower().endswith(endings) and not hidden


class _BoundedTarInfo(tarfile.TarInfo):
    """A header of a tar archive; one that extends others is read into memory, and may say that it is of any size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTENDING and member.size > _LONGEST_RECORD:
            raise RuntimeError(f"a header of {member.size:,} bytes: expected at most {_LONGEST_RECORD:,}")
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise RuntimeError(_SPARSE)
        return member

    def _proc_gnusparse_10(self, *where: Any) -> None:  # tarfile's own would read a map of any length
        raise RuntimeError(_SPARSE)


_SPARSE = "it holds a sparse file: create it without --sparse"
_EXTENDING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _open_tar(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, tarinfo=_BoundedTarInfo)


Entry = TypeVar("Entry")


def _listed(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of an archive, up to a number that can be held in memory."""
    for number, entry in enumerate(entries):
        if number == _MOST_ENTRIES:
            raise RuntimeError(f"more than {_MOST_ENTRIES:,} entries: unpack it into a folder")
        yield entry


def _listed_tar(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in _listed(archive):
        member.pax_headers = {}  # held as long as the archive is open, and of no use any more
        if len(archive.pax_headers) > _MOST_ATTRIBUTES:
            raise RuntimeError(f"more than {_MOST_ATTRIBUTES:,} attributes of all files")
        yield member


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    return cast(BinaryIO, archive.extractfile(member)).read()


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as file:  # in pieces: at once, a file that is larger than announced is unpacked whole
        return b"".join(read_chunks(cast(BinaryIO, file)))


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")
