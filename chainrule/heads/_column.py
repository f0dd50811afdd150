"""Columns of a table: kind, symbols and unit, all independent of a model's weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chainrule._modes import wide, widest
from chainrule._ranges import check_sizes

Kind = Literal["categorical", "integer", "real"]
KINDS = ("categorical", "integer", "real")
FARTHEST = 1e9  # in scales of a column: values beyond it are clamped to it


@dataclass(frozen=True)
class Column:
    """A column of a table.

    A categorical column holds codes 0, ..., K−1. A numeric column holds numbers, and NaN for missing values. Its
    **symbols** are its atoms (values frequent enough to have a probability each), then "missing" if values may be
    missing, then "any other number".

    Args:
        kind: categorical, integer or real.
        categories: K, the number of categories of a categorical column.
        atoms: atoms of a numeric column, ascending.
        missing: if true, values of a numeric column may be missing; a categorical column uses a category for this.
        centre: centre of a numeric column, in its unit.
        scale: scale of a numeric column, in its unit; networks read and write (x − centre) / scale.
        low: smallest integer of an integer column; `None` for no bound.
        finest: minimum scale of a component of a real column, in units of `scale`: it is added to the scale and so
            bounds the density.
        decimals: digits after the point that lossless compression keeps of a real column; `None` if the column cannot
            be compressed.
        prior: positive initial probabilities of the symbols; empty for uniform ones.

    Raises:
        ValueError: the kind is unknown, or a number is out of range.

    >>> Column("categorical", categories=3).symbols, Column("real", atoms=(0.0,), missing=True).symbols
    (3, 3)
    """

    kind: Kind
    categories: int = 0
    atoms: tuple[float, ...] = ()
    missing: bool = False
    centre: float = 0.0
    scale: float = 1.0
    low: int | None = None
    finest: float = 1e-3
    decimals: int | None = None
    prior: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        check_sizes(categories=self.categories if self.kind == "categorical" else None)
        if not (math.isfinite(self.centre) and 0 < self.scale < math.inf):
            raise ValueError(f"centre, scale: expected finite numbers, scale > 0, got {self.centre} and {self.scale}")
        if self.finest <= 0:
            raise ValueError(f"finest: expected a number > 0, got {self.finest}")
        if self.prior and (len(self.prior) != self.symbols or not all(0 < share <= 1 for share in self.prior)):
            raise ValueError(f"prior: expected {self.symbols} positive probabilities, got {self.prior!s:.80}")

    @property
    def numeric(self) -> bool:
        return self.kind != "categorical"

    @property
    def symbols(self) -> int:
        """Number of symbols S: categories, or atoms, missing and any other number."""
        return len(self.atoms) + self.missing + 1 if self.numeric else self.categories

    def features(self) -> int:
        """Return the size of a value as a network's input: one number per symbol, and the number itself."""
        return self.symbols + self.numeric

    def outputs(self, components: int) -> int:
        """Return the size of a network's output for a value: logits of the symbols, and mixture parameters."""
        return self.symbols + 3 * components * self.numeric


class ColumnGroup:
    """Columns of one kind with equal numbers of symbols and atoms; `single` omits the axis of the columns.

    >>> ColumnGroup([Column("real", atoms=(0.0,), scale=2.0)], single=True).read(torch.tensor([0.0, 7.0]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 1.9657]], dtype=torch.float64)
    """

    def __init__(self, columns: Sequence[Column], *, single: bool = False):
        first = columns[0]
        self.columns = list(columns)
        self.kind, self.symbols, self.missing = first.kind, first.symbols, first.missing
        # Plain numbers, not buffers: `model.half()` must not round them, and the meta device would drop their values.
        names = ("atoms", "centre", "scale", "low", "finest")
        self._table = {name: [getattr(column, name) for column in columns] for name in names}
        self._table["low"] = [-math.inf if low is None else low for low in self._table["low"]]
        self._single = single

    def constant(self, name: str, device: torch.device) -> Tensor:
        """Return a parameter of each column, (G,), or (G, A) for the atoms; no first axis if `single`."""
        rows = torch.tensor(self._table[name], dtype=widest(device), device=device)
        return rows[0] if self._single else rows

    def symbol(self, value: Tensor) -> Tensor:
        """Return the symbols of values, (...) integers in [0, S); a value outside the column gets the nearest one."""
        if self.kind == "categorical":
            return value.nan_to_num().round().clamp(0, self.symbols - 1).long()
        symbol = torch.full_like(value, self.symbols - 1, dtype=torch.long)
        if self.missing:
            symbol = symbol.masked_fill(value.isnan(), self.symbols - 2)
        atoms = self.constant("atoms", value.device)
        if atoms.shape[-1]:
            same = value.unsqueeze(-1) == atoms
            symbol = torch.where(same.any(-1), same.int().argmax(-1), symbol)
        return symbol

    def read(self, value: Tensor) -> Tensor:
        """Encode values (...) as a network's input (..., F), float64: one-hot symbol, then asinh of the standardised
        number, which keeps outliers small.
        """
        value = wide(value)
        symbol = (self.symbol(value).unsqueeze(-1) == torch.arange(self.symbols, device=value.device)).to(value)
        if self.kind == "categorical":
            return symbol
        standard = (value - self.constant("centre", value.device)) / self.constant("scale", value.device)
        number = standard.nan_to_num(0.0).clamp(-FARTHEST, FARTHEST).asinh()
        return torch.cat([symbol, number.unsqueeze(-1)], -1)
