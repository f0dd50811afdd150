"""Choices of many rows, written to range coders or read from them."""

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
    """Coded data are not those that were written."""


class RangeCoder(ABC):
    """Encodes or decodes the choices of `chainrule.heads.Head.code`.

    The probabilities are rounded to multiples of 2^-24, none to zero, by constriction's range coder with
    `perfect=False`: the same function of the same bits on both sides. Rows are shared among range coders; a row that
    has ended takes symbol 0 and is not written.

    Attributes:
        active: (B,) which rows go on; `None` for all.
    """

    active: npt.NDArray[np.bool_] | None = None

    def __call__(self, probabilities: Tensor, symbols: Tensor | None = None) -> Tensor:
        count = probabilities.shape[-1]
        if count == 1:
            return torch.zeros(probabilities.shape[0], dtype=torch.long, device=probabilities.device)
        try:
            made = self.choose(
                probabilities.detach().cpu().contiguous().numpy(), None if symbols is None else symbols.cpu().numpy()
            )
        except ValueError as error:
            if "normalizable" not in str(error):
                raise
            raise ValueError("model: expected probabilities, got NaN or infinite ones: its weights diverged") from None
        return torch.from_numpy(made).to(probabilities.device)

    @abstractmethod
    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        """The symbols (B,) that are chosen, from probabilities (B, V) and, where they are written, the symbols."""

    def going(self, rows: Rows) -> Rows:
        """Active rows among `rows`."""
        return rows if self.active is None else rows[self.active[rows]]


class RangeEncoder(RangeCoder):
    """Writes choices.

    Args:
        groups: for each range coder the numbers of its rows, (B_g,).
    """

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
        """Written words of each range coder."""
        return [encoder.get_compressed().astype("<u4").tobytes() for _, encoder in self._groups]


class RangeDecoder(RangeCoder):
    """Reads choices that `RangeEncoder` wrote.

    Args:
        groups: those of the writer.
        parts: the words it finished with; `None` for a part that is lost, whose rows take symbol 0.

    Raises:
        DamagedError: a part is no whole number of words; or, while reading, is not what was written. That is not always
            noticed: parts need a checksum.
    """

    def __init__(self, groups: Sequence[Rows], parts: Sequence[bytes | None]):
        if any(part is not None and len(part) % 4 for part in parts):
            raise DamagedError("coded data: expected a whole number of 4-byte words: they were cut or changed")
        self._groups = [
            (rows, _queue().RangeDecoder(np.frombuffer(part, dtype="<u4").astype(np.uint32)))
            for rows, part in zip(groups, parts, strict=True)
            if part is not None
        ]

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        made = np.zeros(len(probabilities), dtype=np.int64)
        for rows, decoder in self._groups:
            if len(going := self.going(rows)):
                made[going] = _decoded(decoder, _family(), probabilities[going])
        return made


def write_even(symbols: Rows, counts: Rows) -> bytes:
    """Write symbols of which symbol s_i is one of n_i equally probable ones, in the sum of log₂ n_i bits.

    >>> counts = np.array([1, 10, 1000])
    >>> read_even(write_even(np.array([0, 7, 123]), counts), counts)
    array([  0,   7, 123])
    """
    encoder, open_ones = _queue().RangeEncoder(), counts > 1
    if open_ones.any():
        encoder.encode(symbols[open_ones].astype(np.int32), _even(), counts[open_ones].astype(np.int32))
    return bytes(encoder.get_compressed().astype("<u4").tobytes())


def read_even(data: bytes, counts: Rows) -> Rows:
    """The symbols that `write_even` wrote.

    Raises:
        DamagedError: the data are no whole number of words, or not what was written; that is not always noticed.
    """
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
    except AssertionError as error:  # constriction's word for data that no encoder writes
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
    """The package constriction.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import constriction
    except ImportError:
        raise ValueError(
            "compression needs the package constriction, which is not installed: pip install constriction"
        ) from None
    return constriction
