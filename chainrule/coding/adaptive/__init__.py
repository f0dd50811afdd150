"""An adaptive lossless compressor: a mixture of context models of bits, which learns from the data that it codes.

The chain rule over the bits of a file, p(x) = ∏ p(x_t | x_<t): many small models predict the next bit from different
parts of the past, a gated network mixes their predictions, and a binary arithmetic coder writes the bit in -log2 p
bits. The decoder learns the same from the decoded bits, so only the code is stored. All arithmetic is on integers, so
any machine can decode the code.

| file | idea |
| --- | --- |
| `probabilities` | squash and stretch, counters, adaptive probability maps, hashes |
| `models` | contexts and their bit histories, the longest earlier occurrence, and the network |
| `bitstream` | the contexts' parts of the past, all models together, arithmetic coder and main loop |

Mahoney 2005, "Adaptive weighing of context models for lossless data compression"; Mahoney, "Data compression
explained"; Veness et al. 2021, "Gated linear networks"; Knoll, cmix. Needs the extra compress: numba compiles the
loops when they are first used.
"""

from collections.abc import Callable
from types import ModuleType

import numpy as np

_RAW, _CODED = 0, 1  # first byte of a code
_LONG, _REST = 4096, 512  # bytes: minimum length of a shortened run, and its new length


def compress(data: bytes, progress: Callable[[int], None] | None = None) -> bytes:
    """Compress data to about -log2 p bits under the adaptive model, at most one byte more than the data."""
    if not data:
        return b""
    text, cuts = cut_runs(np.frombuffer(data, np.uint8))
    code = _compiled().write(text, progress)
    if code is not None:
        numbers = [len(cuts), *(number for cut in cuts for number in cut)]
        coded = bytes([_CODED]) + b"".join(map(_number, numbers)) + code.tobytes()
        if len(coded) <= len(data):
            return coded
    return bytes([_RAW]) + data


def decompress(data: bytes, length: int, progress: Callable[[int], None] | None = None) -> bytes:
    """Decompress the code of `compress`.

    Damage may go unnoticed: store a checksum of the text with the code.
    """
    wrong = ValueError(f"data: expected the code of {length} bytes, got one that is damaged or of another length")
    if length == 0 or not data:
        if data or length:
            raise wrong
        return b""
    if data[0] == _RAW:
        if len(data) != length + 1:
            raise wrong
        return data[1:]
    try:
        count, at = _read_number(data, 1)
        numbers = []
        for _ in range(2 * count):
            number, at = _read_number(data, at)
            numbers.append(number)
    except IndexError:
        raise wrong from None
    cuts = list(zip(numbers[::2], numbers[1::2], strict=True))
    left = length - sum(cut for _, cut in cuts)
    if data[0] != _CODED or left < max(1, sum(distance for distance, _ in cuts)) or any(not cut[0] for cut in cuts):
        raise wrong
    text = _compiled().read(np.frombuffer(data, np.uint8)[at:], left, progress)
    return restore_runs(text, cuts).tobytes()


def code_length(data: bytes) -> float:
    r"""Return the code length of data in bits, :math:`-\sum_t \log_2 p(x_t \mid x_{<t})` over its bits.

    `compress` adds a few bytes, and shortens long runs of one byte first.
    """
    text = np.frombuffer(data, np.uint8)
    ones = _compiled().probabilities(text) / 65536
    return float(-np.log2(np.where(np.unpackbits(text), ones, 1 - ones)).sum())


def _compiled() -> ModuleType:
    try:
        from chainrule.coding.adaptive import _bitstream as bitstream
    except ImportError as error:
        raise ValueError(
            f"the adaptive model is compiled by numba, which does not work ({error}): pip install numba"
        ) from None
    return bitstream


def _number(number: int) -> bytes:
    """Encode a whole number in groups of 7 bits, lowest first, with a continuation bit (LEB128)."""
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Decode a number below 2^63 at an index, and return it with the next index; IndexError if it does not end."""
    number = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        number, at = number | (byte & 127) << shift, at + 1
        if byte < 128:
            return number, at
    raise IndexError


def cut_runs(text: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Shorten long runs of one byte, which only cost time; return the text and (distance, length) of each cut."""
    starts = np.concatenate([[0], np.flatnonzero(text[1:] != text[:-1]) + 1])
    lengths = np.diff(starts, append=len(text))
    long = np.flatnonzero(lengths >= _LONG)
    pieces, cuts, position = [], [], 0
    for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
        pieces.append(text[position : start + _REST])
        cuts.append((start + _REST - position, length - _REST))
        position = start + length
    return np.concatenate([*pieces, text[position:]]), cuts


def restore_runs(text: np.ndarray, cuts: list[tuple[int, int]]) -> np.ndarray:
    """Undo `cut_runs`."""
    parts, position = [], 0
    for distance, length in cuts:
        parts += [text[position : position + distance], np.full(length, text[position + distance - 1])]
        position += distance
    return np.concatenate([*parts, text[position:]])
