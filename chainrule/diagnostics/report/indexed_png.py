"""A small picture of numbers as PNG, one pixel a number, for the page to stretch."""

import struct
import zlib
from base64 import b64encode

import numpy as np
import numpy.typing as npt


def indexed_png(indices: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> bytes:
    """A PNG (W3C, 2003) of colours from a palette.

    indices: (H, W), each below the palette's length; palette: (K, 3), red, green, blue.

    >>> indexed_png(np.zeros((2, 3), np.uint8), np.zeros((1, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width = indices.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), indices], 1)  # each line begins with its filter: none
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def data_address(png: bytes) -> str:
    """The picture as an address that holds it."""
    return "data:image/png;base64," + b64encode(png).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
