"""Files compressed by gzip or Zstandard, read as if they were not."""

import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
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
