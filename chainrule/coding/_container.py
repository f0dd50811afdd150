"""The file format `.chain`, parts with checksums; fingerprints of models and arithmetic for the decoder to compare."""

import hashlib
import json
import lzma
import os
import platform
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import evaluating
from chainrule.coding._batches import code_rows
from chainrule.coding._range_coder import DamagedError, Numbers, RangeCoder, Rows
from chainrule.layers import KneserNey

MAGIC = b"\x89chain\r\n"  # a byte above 127 and both line ends reveal programs that convert it like text
VERSION = 1
_START = struct.Struct("<8sBII")  # magic, version, size of the header and its CRC
_LONGEST_HEADER = 1 << 25  # bytes, enough for 300,000 files; parsed JSON takes up to 25 times the memory
_CHECKSUM = struct.Struct("<I")
# Preset dictionary of the header's compressor: common words of headers.
_DICTIONARY = (
    b'{"kind": "text", "reading": "stream", "symbols": "parts": [0], "method": "stored", "lzma", "adaptive", "run", '
    b'"machine": "torch 2.13.0+cpu, AVX2, AVX512, x86_64, float32", "arithmetic": "01234567", "model": "89abcdef", '
    b'"threads": 1, "layout": {"rows": 64, "length": "count": "files": [[".txt", "name": "sha256": "'
)


@dataclass(frozen=True)
class Container:
    """Content of a `.chain` file."""

    header: dict[str, Any]  # JSON object
    parts: Sequence[bytes | None]  # coded bytes; `None` for a damaged part

    @property
    def damaged(self) -> list[int]:
        """Indices of the damaged parts."""
        return [number for number, part in enumerate(self.parts) if part is None]


def write_container(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """Build a file from a header and parts."""
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
    """Read the header and the parts of a file; a damaged part is `None`."""
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
        checksum = data[start : start + _CHECKSUM.size]
        part = data[start + _CHECKSUM.size : start + _CHECKSUM.size + length]
        whole = len(part) == length and checksum == _CHECKSUM.pack(zlib.crc32(part))
        parts.append(part if whole else None)
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


PROBED = 6  # elements of each row in the fingerprint
PORTABLE = "any"  # machine of files in portable arithmetic
MOST_THREADS = 16  # in coding, so that a machine with fewer processors decodes in reasonable time


def model_digest(model: nn.Module) -> str:
    """Hash the model's class, and the names, dtypes and values of its weights and tables, to 16 hexadecimal digits."""
    digest = hashlib.sha256(type(model).__qualname__.encode())
    tensors = dict(model.state_dict())
    for path, module in model.named_modules():
        if isinstance(module, KneserNey):
            tensors |= {f"{path}.{name}": table for name, table in module.tables().items()}
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def machine(model: nn.Module) -> str:
    """Describe what the last bits of floats depend on: torch, vector instructions, processor, dtype."""
    weight = next(chain(model.parameters(), model.buffers()), torch.empty(0, device="cpu"))
    kind = weight.device.type
    isa = torch.cuda.get_device_name() if kind == "cuda" else torch.backends.cpu.get_cpu_capability()
    isa = isa if kind in ("cpu", "cuda") else kind
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    words = [f"torch {torch.__version__}", isa, platform.machine(), str(weight.dtype).removeprefix("torch.")]
    return ", ".join([*words, f"oneDNN at most {limit}"] if limit else words)


@contextmanager
def portable_form(model: nn.Module) -> Iterator[Any]:
    """Yield a copy of the model for portable arithmetic, and use this arithmetic in the block."""
    from chainrule.coding._portable.arithmetic import PortableArithmetic, portable_copy

    portable = portable_copy(model)
    with torch.no_grad(), PortableArithmetic():
        yield portable


@contextmanager
def reproducible(model: nn.Module, threads: int) -> Iterator[None]:
    """In the block, compute in evaluation mode, without autocast and with a fixed number of threads."""
    before, weight = (
        torch.get_num_threads(),
        next(chain(model.parameters(), model.buffers()), torch.empty(0, device="cpu")),
    )
    try:
        if threads != before:
            torch.set_num_threads(threads)
        with evaluating(model), torch.autocast(weight.device.type, enabled=False):
            yield
    finally:
        if threads != before:
            torch.set_num_threads(before)


def arithmetic_digest(model: AutoregressiveModel, rows: int, length: int, context: Context = None) -> str:
    """Hash the exact probabilities of the first elements of fixed sequences to 8 hexadecimal digits.

    Machines with equal digests round alike in this model at this batch size, as far as a few thousand numbers show.
    """
    probe = _Probe()
    code_rows(model, probe, rows, min(length, PROBED), context=context)
    return probe.digest.hexdigest()[:8]


class _Probe(RangeCoder):
    """Coder that hashes probabilities and chooses fixed symbols."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.calls = 0

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        self.digest.update(probabilities.tobytes())
        self.calls += 1
        return (np.arange(len(probabilities)) * 7 + self.calls * 13) % probabilities.shape[1]
