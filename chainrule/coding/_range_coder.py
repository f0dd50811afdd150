"""Range coders for the choices of many rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


class DamagedError(ValueError):
    """Error: coded data are damaged."""


class RangeCoder(ABC):
    """Base class: encodes or decodes the choices of `chainrule.heads.Head.code`.

    constriction's range coder with `perfect=False` rounds probabilities to multiples of 2^-24, none to zero, as the
    same function of the same bits on both sides. Several range coders share the rows; a row that has ended gets symbol
    0 and is not coded.
    """

    active: npt.NDArray[np.bool_] | None = None

    def __call__(self, probabilities: Tensor, symbols: Tensor | None = None) -> Tensor:
        count = probabilities.shape[-1]
        if count == 1:
            return torch.zeros(probabilities.shape[0], dtype=torch.long, device=probabilities.device)
        try:
            coded = self.choose(
                probabilities.detach().cpu().contiguous().numpy(), None if symbols is None else symbols.cpu().numpy()
            )
        except ValueError as error:
            if "normalizable" not in str(error):
                raise
            raise ValueError("model: expected probabilities, got NaN or infinite ones: its weights diverged") from None
        return torch.from_numpy(coded).to(probabilities.device)

    @abstractmethod
    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        """Encode the symbols (B,) with probabilities (B, V), or decode them if `symbols` is `None`; return them."""

    def going(self, rows: Rows) -> Rows:
        """Return the active rows among `rows`."""
        return rows if self.active is None else rows[self.active[rows]]


class RangeEncoder(RangeCoder):
    """Encoder of choices; `groups` holds the row indices (B_g,) of each range coder."""

    def __init__(self, groups: Sequence[Rows]):
        self._groups = [(rows, _queue().RangeEncoder()) for rows in groups]

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        assert symbols is not None
        count = probabilities.shape[1]
        if self.active is not None:
            symbols = np.where(self.active, symbols, 0)
        if symbols.min() < 0 or symbols.max() >= count:
            wrong = symbols[(symbols < 0) | (symbols >= count)][0]
            raise ValueError(f"x: expected symbols in [0, {count}), got {wrong}")
        for rows, encoder in self._groups:
            if len(going := self.going(rows)):
                encoder.encode(symbols[going].astype(np.int32), _family(), probabilities[going])
        return symbols

    def finish(self) -> list[bytes]:
        """Return the words of each range coder."""
        return [encoder.get_compressed().astype("<u4").tobytes() for _, encoder in self._groups]


_ROUNDING = 2.0**-23  # maximum by which a rounded probability exceeds its own
_MOST_LEFT = 128  # maximum bits of the symbols that are left when a decoder has read its last word


class RangeDecoder(RangeCoder):
    """Decoder of the parts of a `RangeEncoder` with the same groups; rows of a lost part (`None`) get symbol 0.

    It raises `DamagedError` for damaged parts, soon after the last word if symbols go on, but may miss some damage:
    parts need a checksum.
    """

    def __init__(self, groups: Sequence[Rows], parts: Sequence[bytes | None]):
        if any(part is not None and len(part) % 4 for part in parts):
            raise DamagedError("coded data: expected a whole number of 4-byte words: they were cut or changed")
        self._groups = [
            (rows, _queue().RangeDecoder(np.frombuffer(part, dtype="<u4").astype(np.uint32)))
            for rows, part in zip(groups, parts, strict=True)
            if part is not None
        ]
        self._left = np.full(len(self._groups), float(_MOST_LEFT))

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        symbols = np.zeros(len(probabilities), dtype=np.int64)
        for group, (rows, decoder) in enumerate(self._groups):
            if len(going := self.going(rows)):
                ended = decoder.maybe_exhausted()
                symbols[going] = _decoded(decoder, _family(), probabilities[going])
                if ended:
                    chosen = probabilities[going, symbols[going]] / probabilities[going].sum(1)
                    self._left[group] += np.log2(chosen + _ROUNDING).sum()
                    if self._left[group] < 0:
                        raise DamagedError("coded data: they end before their symbols: they were cut or changed")
        return symbols


def write_even(symbols: Rows, counts: Rows) -> bytes:
    """Encode symbols, each uniform over its count n_i of values, in Σ log₂ n_i bits.

    >>> counts = np.array([1, 10, 1000])
    >>> read_even(write_even(np.array([0, 7, 123]), counts), counts)
    array([  0,   7, 123])
    """
    encoder, open_ones = _queue().RangeEncoder(), counts > 1
    if open_ones.any():
        encoder.encode(symbols[open_ones].astype(np.int32), _even(), counts[open_ones].astype(np.int32))
    return bytes(encoder.get_compressed().astype("<u4").tobytes())


def read_even(data: bytes, counts: Rows) -> Rows:
    """Decode the symbols of `write_even`; damage may go unnoticed."""
    if len(data) % 4:
        raise DamagedError("coded data: expected a whole number of 4-byte words: they were cut or changed")
    symbols, open_ones = np.zeros(len(counts), dtype=np.int64), counts > 1
    if open_ones.any():
        decoder = _queue().RangeDecoder(np.frombuffer(data, dtype="<u4").astype(np.uint32))
        symbols[open_ones] = _decoded(decoder, _even(), counts[open_ones].astype(np.int32))
    return symbols


def _decoded(decoder: Any, family: Any, parameters: Numbers) -> Rows:
    try:
        symbols: Rows = decoder.decode(family, parameters)
    except AssertionError as error:  # raised by constriction for data that no encoder writes
        raise DamagedError(f"coded data: not what was written ({error})") from None
    return symbols


@cache
def _even() -> Any:
    return needed_package().stream.model.Uniform()


@cache
def _family() -> Any:
    return needed_package().stream.model.Categorical(perfect=False)


def _queue() -> Any:
    return needed_package().stream.queue


def needed_package() -> Any:
    """Import constriction, or raise ValueError."""
    try:
        import constriction
    except ImportError:
        raise ValueError(
            "compression needs the package constriction, which is not installed: pip install constriction"
        ) from None
    return constriction
