"""Range coders for the choices of many rows."""

from abc import ABC, abstractmethod
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
    same function of the same bits on both sides. A row that has ended gets symbol 0 and is not coded.
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


class RangeEncoder(RangeCoder):
    """Encoder of choices."""

    def __init__(self) -> None:
        self._encoder = _queue().RangeEncoder()

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        assert symbols is not None
        count = probabilities.shape[1]
        if self.active is not None:
            symbols = np.where(self.active, symbols, 0)
        if symbols.min() < 0 or symbols.max() >= count:
            wrong = symbols[(symbols < 0) | (symbols >= count)][0]
            raise ValueError(f"x: expected symbols in [0, {count}), got {wrong}")
        coded = slice(None) if self.active is None else self.active
        self._encoder.encode(symbols[coded].astype(np.int32), _family(), probabilities[coded])
        return symbols

    def finish(self) -> bytes:
        """Return the coded words."""
        return bytes(self._encoder.get_compressed().astype("<u4").tobytes())


_ROUNDING = 2.0**-23  # maximum by which a rounded probability exceeds its own
_MOST_LEFT = 128  # maximum bits of the symbols that are left when a decoder has read its last word


class RangeDecoder(RangeCoder):
    """Decoder of what a `RangeEncoder` wrote.

    It raises `DamagedError` for damaged bytes, soon after the last word if symbols go on, but may miss some damage:
    the bytes need a checksum.
    """

    def __init__(self, data: bytes):
        if len(data) % 4:
            raise DamagedError("coded data: expected a whole number of 4-byte words: they were cut or changed")
        self._decoder = _queue().RangeDecoder(np.frombuffer(data, dtype="<u4").astype(np.uint32))
        self._left = float(_MOST_LEFT)

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        symbols = np.zeros(len(probabilities), dtype=np.int64)
        coded = np.flatnonzero(np.ones(len(probabilities)) if self.active is None else self.active)
        ended = self._decoder.maybe_exhausted()
        symbols[coded] = _decoded(self._decoder, _family(), probabilities[coded])
        if ended:
            chosen = probabilities[coded, symbols[coded]] / probabilities[coded].sum(1)
            self._left += np.log2(chosen + _ROUNDING).sum()
            if self._left < 0:
                raise DamagedError("coded data: they end before their symbols: they were cut or changed")
        return symbols


def _decoded(decoder: Any, family: Any, parameters: Numbers) -> Rows:
    try:
        symbols: Rows = decoder.decode(family, parameters)
    except AssertionError as error:  # raised by constriction for data that no encoder writes
        raise DamagedError(f"coded data: not what was written ({error})") from None
    return symbols


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
