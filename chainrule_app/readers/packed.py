"""Files compressed by gzip or Zstandard, read as if they were not."""

import gzip
import io
import zlib
from collections.abc import Iterator
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
                with io.BufferedReader(cast(Any, _ZstdFile(file, path)), 1 << 16) as buffered:
                    yield cast(BinaryIO, buffered)
            else:
                yield file
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: cannot be read ({error}): restore it from a copy") from None


class _ZstdFile(io.RawIOBase):
    """The unpacked bytes of an open file; unlike the reader of zstandard, it reports a file that is cut off."""

    def __init__(self, file: BinaryIO, path: str | Path):
        try:
            import zstandard
        except ImportError:
            raise ImportError(f"{path}: reading .zst requires zstandard: pip install zstandard") from None
        self._file, self._error = file, zstandard.ZstdError
        self._begin = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj
        self._frame: Any = None  # None between two frames
        self._packed, self._unpacked = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked:
            self._packed = self._packed or self._file.read(_STEP)
            if not self._packed and self._frame is None:
                return 0
            if not self._packed:
                raise EOFError("it ends early")
            self._frame = self._frame or self._begin()
            try:
                self._unpacked = memoryview(self._frame.decompress(self._packed))
            except self._error as error:
                raise EOFError(str(error)) from None
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count
