"""A lossless compressor that begins with nothing and learns while it reads: a mixture of context models of bits.

The chain rule over the bits of a file, p(x) = ∏ p(x_t | x_<t): many small models each predict the next bit from
another part of the past, a gated network mixes their predictions, and a binary arithmetic coder writes the bit in
-log2 p bits. The reader learns the same from the bits that it has read, so nothing but the code need be kept. All
arithmetic is on integers: a code made on one machine is read on any other.

| file | idea |
| --- | --- |
| `logistic` | squash and stretch |
| `histories` | bit histories |
| `counters` | adaptive probabilities |
| `past` | which parts of the past are contexts |
| `contexts` | their tables |
| `match` | the longest earlier occurrence |
| `mixer` | the network |
| `refinement` | adaptive probability maps |
| `predictor` | all of these together |
| `range_coder` | probabilities to bits |
| `runs` | long runs of one byte |
| `bitstream` | the loop |

Mahoney 2005, "Adaptive weighing of context models for lossless data compression"; Mahoney, "Data compression
explained"; Veness et al. 2021, "Gated linear networks"; Knoll, cmix. Needs the extra compress: numba compiles the
loops when they are first used.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np

_RAW, _CODED = 0, 1  # the first byte of a code


def compress(data: bytes, progress: Callable[[int], None] | None = None) -> bytes:
    """Write data in about -log2 p bits under the model that learns as it reads; at most a byte longer than data.

    Args:
        data: of a file.
        progress: called with the number of bytes done, long runs left out.

    Raises:
        ValueError: numba is not installed.
    """
    if not data:
        return b""
    from chainrule.coding.adaptive._runs import cut_runs

    text, cuts = cut_runs(np.frombuffer(data, np.uint8))
    code = _compiled().write(text, progress)
    if code is not None:
        numbers = [len(cuts), *(number for cut in cuts for number in cut)]
        coded = bytes([_CODED]) + b"".join(map(_number, numbers)) + code.tobytes()
        if len(coded) <= len(data):
            return coded
    return bytes([_RAW]) + data


def decompress(data: bytes, length: int, progress: Callable[[int], None] | None = None) -> bytes:
    """Read back what `compress` wrote.

    A code that is damaged may go unnoticed: keep a checksum of the text with it.

    Args:
        data: the code.
        length: bytes of the text.
        progress: called with the number of bytes done, long runs left out.

    Raises:
        ValueError: data is no code of a text of this length, or numba is not installed.
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
    from chainrule.coding.adaptive._runs import restore_runs

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
    r"""The bits that the model needs for data: :math:`-\sum_t \log_2 p(x_t \mid x_{<t})` over its bits.

    `compress` writes these, rounded up to bytes, and a few bytes more; long runs of one byte it cuts out first.

    Raises:
        ValueError: numba is not installed.
    """
    text = np.frombuffer(data, np.uint8)
    ones = _compiled().probabilities(text) / 65536
    return float(-np.log2(np.where(np.unpackbits(text), ones, 1 - ones)).sum())


def is_compiled() -> bool:
    """Whether the loops were compiled for these files before; if not, their first use takes about ten seconds.

    Raises:
        ValueError: numba is not installed.
    """
    _compiled()
    from chainrule.kernels._machine_code import is_kept

    return is_kept(Path(__file__).parent)


def _compiled() -> ModuleType:
    try:
        from chainrule.coding.adaptive import _bitstream as bitstream
    except ImportError:
        raise ValueError("the adaptive model is compiled by numba, which is not installed: pip install numba") from None
    return bitstream


def _number(number: int) -> bytes:
    """A whole number in groups of 7 bits, the lowest first; the eighth bit says that another follows (LEB128)."""
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """A number below 2^63 that begins at a place, and the place after it; IndexError where it does not end."""
    number = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        number, at = number | (byte & 127) << shift, at + 1
        if byte < 128:
            return number, at
    raise IndexError
