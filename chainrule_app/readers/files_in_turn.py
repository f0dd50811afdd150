"""Several files, a compressed one or standard input, read as one stream of bytes, and bytes kept for several passes."""

import hashlib
import io
import sys
from codecs import BOM_UTF8
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePath
from tempfile import NamedTemporaryFile, gettempdir
from typing import Any, BinaryIO, cast

from chainrule.files import naming
from chainrule_app.printing import shown
from chainrule_app.readers.origin import STDIN, ByteSource, Origin, Part, no_such_file, read_chunks
from chainrule_app.readers.sources import is_packed
from chainrule_app.readers.text import Chunks, open_bytes

_MOST_RATIO, _ALWAYS = 200, 1 << 28  # a file expands to so many times its size, or to so many bytes
_HELD = 1 << 26  # bytes of a spool in memory


class Spool(ByteSource):
    """Bytes that come once and are read more often: in memory, beyond 64 MiB in a temporary file.

    Training passes over its data twice, and a text is cut at a position and read in places drawn at random, which
    neither standard input nor a compressed file allows.
    """

    def __init__(self, origin: Origin, chunks: Iterable[bytes], name: str):
        self.origin, self.name = origin, name
        held, self._file = io.BytesIO(), None
        for chunk in chunks:
            if self._file is None and held.tell() + len(chunk) > _HELD:
                self._file = NamedTemporaryFile(prefix="chainrule-")  # noqa: SIM115  as long as this object
                chunk, held = held.getvalue() + chunk, io.BytesIO()
            with naming(Path(gettempdir())):
                (self._file or held).write(chunk)
        if self._file is not None:
            with naming(Path(gettempdir())):
                self._file.flush()
        self._content = held.getvalue()

    def open(self) -> BinaryIO:
        return io.BytesIO(self._content) if self._file is None else open(self._file.name, "rb")

    def fingerprint(self) -> dict[str, Any]:
        return _digest(self.name, self.open())


class HeldText(Spool):
    r"""A text in memory, or strings that are lines of one, each ended by ``\n``; they may come from a generator."""

    def __init__(self, origin: Origin, pieces: Iterable[str]):
        super().__init__(origin, _encoded(origin, pieces), PurePath(origin.name).name)


def _encoded(origin: Origin, pieces: Iterable[str]) -> Iterator[bytes]:
    empty = True
    for index, piece in enumerate(pieces):
        try:
            chunk = piece.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{origin.at(index)}: contains half of a surrogate pair, which is not a character: remove it, for "
                "example with text.encode(errors='ignore').decode()"
            ) from None
        empty = empty and not chunk.strip(b"\n")
        yield chunk
    if empty:
        raise ValueError(f"{origin}: expected text, got none")


class FilesInTurn(ByteSource):
    """Several files, one after the other, or standard input; lines are numbered through, and `origin` names their file.

    Only the first file of a table keeps its header, which the others must have too. Each file loses its own byte order
    mark, and ends with a line feed.
    """

    def __init__(
        self, source: str, paths: Sequence[str], *, headers: bool = False, end: bytes = b"\n", unit: str = "line"
    ):
        for path in paths:
            if path != STDIN and not Path(path).exists():
                raise no_such_file(path)
        self.paths, self._headers, self._end = paths, headers, end
        self.origin = Origin("standard input" if source == STDIN else shown(source), unit)
        first = "standard-input" if paths[0] == STDIN else Path(paths[0]).name
        self.name = first + (f"+{len(paths) - 1}" if len(paths) > 1 else "")
        self._input = Spool(self.origin, read_chunks(sys.stdin.buffer), self.name) if paths[0] == STDIN else None

    def open(self) -> BinaryIO:
        if self._input is not None:
            return self._input.open()
        return cast(BinaryIO, io.BufferedReader(Chunks(self._chunks()), 1 << 20))

    def fingerprint(self) -> dict[str, Any]:
        return _digest(self.name, self.open())

    def note(self, index: int, before: int, skipped: int = 0) -> None:
        """Note how many items come before those of a file."""
        if index == len(self.origin.parts):
            self.origin.parts.append(Part(self.paths[index], before, skipped))

    def _chunks(self) -> Generator[bytes, None, None]:
        header, lines, several = b"", 0, len(self.paths) > 1
        for index, path in enumerate(self.paths):
            with open_bytes(path) as file:
                chunks = _limited(path, file)
                beginning = next(chunks, b"")
                if several:
                    beginning = beginning.removeprefix(BOM_UTF8)
                skipped = int(self._headers and index > 0)
                if several and self._headers:
                    line, _, rest = beginning.partition(b"\n")
                    if index and line.rstrip(b"\r") != header:
                        raise ValueError(f"{path}: expected the header of {self.paths[0]}: all files need the same one")
                    header, beginning = line.rstrip(b"\r"), rest if index else beginning
                self.note(index, lines, skipped)
                last = b""
                for chunk in chain([beginning], chunks):
                    yield chunk
                    lines += chunk.count(b"\n")
                    last = (last + chunk)[-len(self._end) :]
                while several and last and not last.endswith(self._end):
                    yield b"\n"
                    lines, last = lines + 1, last + b"\n"


def _limited(path: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of an open file, no more than a multiple of its size."""
    most, done = sys.maxsize, 0
    if is_packed(path):
        most = max(_ALWAYS, _MOST_RATIO * Path(path).stat().st_size)
    for chunk in read_chunks(file):
        done += len(chunk)
        if done > most:
            raise ValueError(
                f"{path}: expands to more than {_MOST_RATIO}× its size (possible archive bomb): "
                "decompress it first if you trust it"
            )
        yield chunk


def _digest(name: str, opened: BinaryIO) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with opened as file:
        for chunk in read_chunks(file):
            digest.update(chunk)
            size += len(chunk)
    return {"name": name, "bytes": size, "sha256": digest.hexdigest()}
