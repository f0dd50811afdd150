"""The file format `.chain`: a JSON header and parts, each with a length and a checksum."""

import json
import lzma
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.coding import DamagedError

MAGIC = b"\x89chain\r\n"  # a byte above 127 and both line ends reveal programs that convert it like text
VERSION = 2
_START = struct.Struct("<8sBII")  # magic, version, size of the header and its CRC
_LONGEST_HEADER = 1 << 16  # bytes
_CHECKSUM = struct.Struct("<I")
# Preset dictionary of the header's compressor: common words of headers.
_DICTIONARY = (
    b'{"kind": "text", "symbols": "parts": [0], "method": "stored", "lzma", "run", '
    b'"machine": "torch 2.13.0+cpu, AVX2, AVX512, x86_64, float32", "arithmetic": "01234567", "model": "89abcdef", '
    b'"threads": 1, "layout": {"rows": 64, "length": "count": "size": ".txt", "name": "sha256": "'
)


@dataclass(frozen=True)
class Container:
    """Content of a `.chain` file."""

    header: dict[str, Any]  # JSON object
    parts: Sequence[bytes]


def write_container(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """Build a file from a header and parts."""
    packer = zlib.compressobj(9, wbits=-15, zdict=_DICTIONARY)
    text = json.dumps(header | {"parts": [len(part) for part in parts]}, ensure_ascii=False)
    described = text.encode("utf-8", "surrogatepass")
    assert len(described) <= _LONGEST_HEADER
    packed = packer.compress(described) + packer.flush()
    pieces = [_START.pack(MAGIC, VERSION, len(packed), zlib.crc32(packed)), packed]
    pieces += [_CHECKSUM.pack(zlib.crc32(part)) + part for part in parts]
    return b"".join(pieces)


def read_container(data: bytes, name: str = "data") -> Container:
    """Read the header and the parts of a file; raise `DamagedError` if a byte of it was changed or cut."""
    if not data.startswith(MAGIC):
        raise ValueError(f"{name}: expected a .chain file, as `chainrule compress` writes it, got something else")
    if len(data) < _START.size:
        raise DamagedError(f"{name}: truncated after {len(data)} bytes, inside the header: restore it from a copy")
    _, version, size, checksum = _START.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"{name}: expected version {VERSION} of the format, got {version}: update chainrule")
    start = _START.size + size
    packed = data[_START.size : start]
    if len(packed) < size or zlib.crc32(packed) != checksum:
        raise DamagedError(f"{name}: the header is damaged: restore the file from a copy")
    header = _unpacked(packed)
    if header is None:
        raise DamagedError(f"{name}: the header was not written by chainrule")
    parts: list[bytes] = []
    for length in header.pop("parts"):
        checksum = data[start : start + _CHECKSUM.size]
        part = data[start + _CHECKSUM.size : start + _CHECKSUM.size + length]
        if len(part) != length or checksum != _CHECKSUM.pack(zlib.crc32(part)):
            raise DamagedError(f"{name}: its data are damaged: restore the file from a copy")
        parts.append(part)
        start += _CHECKSUM.size + length
    return Container(header, parts)


def _unpacked(packed: bytes) -> dict[str, Any] | None:
    """Decompress the header with the lengths of the parts; `None` if it is invalid."""
    try:
        unpacked = zlib.decompressobj(-15, _DICTIONARY).decompress(packed, _LONGEST_HEADER)
        header = json.loads(unpacked.decode("utf-8", "surrogatepass"))
    except (zlib.error, ValueError, RecursionError):
        return None
    lengths = header.get("parts") if isinstance(header, dict) else None
    whole = isinstance(lengths, list) and all(type(length) is int and length >= 0 for length in lengths)
    return header if whole else None


_LARGEST_WINDOW = 1 << 27  # limit of the window's memory for a stream in the .lzma format, bytes


def unpacked(packed: bytes, most: int, filters: list[dict[str, Any]] | None = None) -> bytes:
    """Decompress one lzma stream of at most `most` bytes; `filters` describe a raw stream."""
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
