"""Read bytes, text and lines of files; those compressed by gzip or Zstandard are read as if they were not."""

import gzip
import io
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from chainrule_app.readers.origin import STDIN, ByteSource, no_such_file, read_chunks
from chainrule_app.readers.sources import GZIP, ZSTD, decode, decode_chunks, with_line_feeds

LONGEST_LINE = 1 << 25  # bytes: a line is held in memory
NO_UTF8 = "expected UTF-8, got other bytes: convert the file, from Latin-1 for example with iconv -f latin1 -t utf-8"


def read_text(path: str | Path | ByteSource, *, strict: bool = True) -> Generator[str, None, None]:
    """Yield the text of a file in chunks; `-` is standard input.

    Args:
        path: the file.
        strict: refuse what is no text. Otherwise any byte passes, as a surrogate escape where it is no UTF-8, and
            `ByteVocabulary.encode` gives it back.

    Raises:
        ValueError: a NUL byte or invalid UTF-8 (with byte offset and line), or the path is a directory.
        FileNotFoundError: there is no such file.
    """
    with open_bytes(path) as file:
        chunks = read_chunks(file)
        yield from decode_chunks(with_line_feeds(chunks) if strict else chunks, name=name_of(path), strict=strict)


def read_lines(path: str | Path | ByteSource, *, strict: bool = True) -> Generator[tuple[int, str], None, None]:
    r"""Yield the lines of a file with their numbers from 1, without their ``\n``; `-` is standard input.

    Only ``\n`` ends a line, or ``\r`` where a text has no ``\n``; a ``\r`` before it stays. Lines come as soon as they
    are there, so a growing log can be piped in. Arguments and errors match `read_text`.
    """
    name, offset = name_of(path), 0
    with open_bytes(path) as file:
        for number, raw in raw_lines(file, name):
            if strict and number == 1 and b"\n" not in raw:  # the whole file: lines may end in carriage returns alone
                text = decode(raw, name=name, strict=strict, offset=0, line=1)
                yield from enumerate(text.removesuffix("\r").split("\r"), 1)
                return
            yield number, decode(raw.removesuffix(b"\n"), name=name, strict=strict, offset=offset, line=number)
            offset += len(raw)


def raw_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    r"""Yield the lines of an open file with their ends, as soon as they are there, with their numbers."""
    for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), 1):
        if len(raw) > LONGEST_LINE:
            raise ValueError(f"{name} line {number}: longer than {LONGEST_LINE >> 20} MiB: split it")
        yield number, raw


def open_bytes(path: str | Path | ByteSource) -> AbstractContextManager[BinaryIO]:
    """Open a file, unpacked where it is compressed, standard input for `-`, or other bytes, for reading."""
    if isinstance(path, ByteSource):
        return path.open()
    if str(path) == STDIN:
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    if not Path(path).exists():
        raise no_such_file(path)
    return open_unpacked(path)


def name_of(path: str | Path | ByteSource) -> str:
    """Return the name of a file in messages."""
    return "standard input" if str(path) == STDIN else str(path)


_WINDOW = 1 << 27  # bytes that a .zst file may refer back to, which are held in memory


_STEP = 1 << 10  # bytes unpacked at a time, each to 32 MiB at most


@contextmanager
def open_unpacked(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading its bytes; a compressed one is unpacked as it is read."""
    name = Path(path).name.lower()
    with Path(path).open("rb") as file:
        beginning = file.peek(4)[:4]
        try:
            if name.endswith(".gz") or beginning.startswith(GZIP):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif name.endswith(".zst") or beginning == ZSTD:
                with io.BufferedReader(Chunks(_unpacked_zstd(file, path)), 1 << 16) as buffered:
                    yield cast(BinaryIO, buffered)
            else:
                yield file
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: cannot be read ({error}): restore it from a copy") from None


class Chunks(io.RawIOBase):
    """A stream of the bytes that a generator yields."""

    def __init__(self, chunks: Generator[bytes, None, None]):
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._chunks.close()
        super().close()


def _unpacked_zstd(file: BinaryIO, path: str | Path) -> Generator[bytes, None, None]:
    """Yield the unpacked bytes of an open file; unlike the reader of zstandard, report a file that is cut off."""
    try:
        import zstandard
    except ImportError:
        raise ImportError(
            f"{path}: reading .zst needs zstandard, which is not installed: pip install zstandard"
        ) from None
    decompressor, frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW), None  # None between two frames
    while packed := file.read(_STEP):
        while packed:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(packed)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it ends early")
