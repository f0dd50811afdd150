"""The file format `.chain`: a header and parts, each with a checksum, so that damage is found and placed."""

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.coding._range_coder import DamagedError

MAGIC = b"\x89chain\r\n"  # a byte above 127 and both line ends: programs that take it for a text change it visibly
VERSION = 1
_START = struct.Struct("<8sBII")  # magic, version, bytes of the header and their CRC
_LONGEST_HEADER = 1 << 25  # bytes, of some 300,000 files; as JSON they take up to 25 times that in memory
_CHECKSUM = struct.Struct("<I")
# Preset dictionary of the header's compressor: words that headers have in common.
_DICTIONARY = (
    b'{"kind": "text", "reading": "stream", "symbols": "parts": [0], "method": "stored", "lzma", "adaptive", "run", '
    b'"machine": "torch 2.13.0+cpu, AVX2, AVX512, x86_64, float32", "arithmetic": "01234567", "model": "89abcdef", '
    b'"threads": 1, "layout": {"rows": 64, "length": "count": "files": [[".txt", "name": "sha256": "'
)


@dataclass(frozen=True)
class Container:
    """The content of a `.chain` file.

    Args:
        header: a JSON object.
        parts: the coded bytes; `None` for one that is damaged.
    """

    header: dict[str, Any]
    parts: Sequence[bytes | None]

    @property
    def damaged(self) -> list[int]:
        """The numbers of the parts that are damaged."""
        return [number for number, part in enumerate(self.parts) if part is None]


def write_container(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """A file of a header and parts.

    Raises:
        ValueError: the header is too long to be read back.

    >>> content = read_container(write_container({"name": "a"}, [b"one", b""]))
    >>> content.header["name"], content.parts
    ('a', [b'one', b''])
    """
    packer = zlib.compressobj(9, wbits=-15, zdict=_DICTIONARY)
    text = json.dumps(header | {"parts": [len(part) for part in parts]}, ensure_ascii=False)
    described = text.encode("utf-8", "surrogatepass")
    if len(described) > _LONGEST_HEADER:
        raise ValueError(f"header: expected at most {_LONGEST_HEADER} bytes, got {len(described)}: write fewer files")
    packed = packer.compress(described) + packer.flush()
    pieces = [_START.pack(MAGIC, VERSION, len(packed), zlib.crc32(packed)), packed]
    pieces += [_CHECKSUM.pack(zlib.crc32(part)) + part for part in parts]
    return b"".join(pieces)


def read_container(data: bytes, name: str = "data") -> Container:
    """The header and the parts of a file; a damaged part is `None`.

    Args:
        data: the file.
        name: of the file, for errors.

    Raises:
        ValueError: it is no such file, or one of a later version.
        DamagedError: the header is damaged.
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"{name}: expected a .chain file, as `chainrule compress` writes it, got something else")
    if len(data) < _START.size:
        raise DamagedError(f"{name}: cut off after {len(data)} bytes, inside the header: nothing can be saved")
    _, version, size, checksum = _START.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"{name}: expected version {VERSION} of the format, got {version}: update chainrule")
    start = _START.size + size
    packed = data[_START.size : start]
    if len(packed) < size or zlib.crc32(packed) != checksum:
        raise DamagedError(f"{name}: the header is damaged: nothing can be saved")
    header = _unpacked(packed)
    if header is None:
        raise DamagedError(f"{name}: the header was not written by chainrule: nothing can be saved")
    parts: list[bytes | None] = []
    for length in header.pop("parts"):
        found = data[start : start + _CHECKSUM.size]
        part = data[start + _CHECKSUM.size : start + _CHECKSUM.size + length]
        whole = len(part) == length and found == _CHECKSUM.pack(zlib.crc32(part))
        parts.append(part if whole else None)
        start += _CHECKSUM.size + length
    return Container(header, parts)


def _unpacked(packed: bytes) -> dict[str, Any] | None:
    """The header, with the lengths of the parts; `None` where there is none."""
    try:
        unpacked = zlib.decompressobj(-15, _DICTIONARY).decompress(packed, _LONGEST_HEADER)
        header = json.loads(unpacked.decode("utf-8", "surrogatepass"))
    except (zlib.error, ValueError, RecursionError):
        return None
    lengths = header.get("parts") if isinstance(header, dict) else None
    whole = isinstance(lengths, list) and all(type(length) is int and length >= 0 for length in lengths)
    return header if whole else None
