"""Decompress lzma data with a limit on size and memory."""

import lzma
from typing import Any

_LARGEST_WINDOW = 1 << 27  # bytes of memory that a stream in the .lzma format may need for its window


def unpacked(packed: bytes, most: int, filters: list[dict[str, Any]] | None = None) -> bytes:
    """Unpack a single stream, and stop where it becomes too long.

    Args:
        packed: by `lzma.compress`.
        most: bytes that the data may have.
        filters: of a raw stream; `None` for one in the format of .lzma files.

    Raises:
        ValueError: there are more bytes, or it is no such stream, or a part of one.

    >>> unpacked(lzma.compress(bytes(1000), lzma.FORMAT_ALONE), 1000) == bytes(1000)
    True
    >>> unpacked(lzma.compress(bytes(1000), lzma.FORMAT_ALONE), 999)
    Traceback (most recent call last):
    ValueError: packed: expected at most 999 bytes in it, got more, or a part of a stream
    """
    if filters is None:
        reader = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_LARGEST_WINDOW)
    else:
        reader = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
    try:
        data = reader.decompress(packed, most + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"packed: expected a stream of lzma, got other data: {error}") from None
    if len(data) > most or not reader.eof:
        raise ValueError(f"packed: expected at most {most} bytes in it, got more, or a part of a stream")
    return data
