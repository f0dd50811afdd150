"""Cells as a column of polars: counted, matched and converted without a Python object each."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from chainrule.data.tables.cell_column import CellColumn, Flags, Floats, NumberCells
from chainrule.data.tables.cells import INFINITE, INTEGER, LARGEST, LONGEST_INTEGER, MISSING, NUMBER


class PolarsCells(CellColumn):
    """Cells as a Series of polars.

    Args:
        series: of strings, none of them null.
    """

    def __init__(self, series: Any):
        self._series = series

    def __len__(self) -> int:
        return len(self._series)

    def cell(self, place: int) -> str:
        return str(self._series[place])

    def part(self, chosen: Flags | slice) -> "PolarsCells":
        if isinstance(chosen, slice):
            return PolarsCells(self._series[chosen])
        return PolarsCells(self._series.filter(chosen))

    def counts(self, among: Collection[str] | None = None) -> list[tuple[str, int]]:
        series = self._series if among is None else self._series.filter(_is_in(self._series, among))
        counted = series.alias("cell").to_frame().group_by("cell", maintain_order=True).len("count")
        return list(zip(counted["cell"].to_list(), counted["count"].to_list(), strict=True))

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        values, series = self.floats(), self._series
        number = series.str.contains(f"^{NUMBER}$").to_numpy()
        rest = np.flatnonzero(~number)
        values[rest] = np.nan
        others = series[rest]
        infinite = others.str.contains(f"^{INFINITE}$").to_numpy()
        word = ~infinite & ~_is_in(others, MISSING).to_numpy()
        overflowed = np.flatnonzero(np.isinf(values))  # 1e999
        values[overflowed] = np.nan
        first_infinite = [*rest[infinite][:1].tolist(), *overflowed[:1].tolist()]
        spelt = self._integers() if fraction else np.ones(len(values), dtype=np.bool_)
        return NumberCells(
            values,
            _first(rest[word]),
            min(first_infinite, default=None),
            _first(np.flatnonzero(~np.isnan(values) & ~spelt)),
        )

    def _integers(self) -> Flags:
        """Which cells spell an integer in the usual way."""
        series = self._series
        usual = series.str.contains(f"^{INTEGER}$") & (series.str.len_bytes() <= LONGEST_INTEGER)
        fits = series.cast(_polars().Int64, strict=False).abs() <= LARGEST
        return np.array(usual.to_numpy() & fits.fill_null(value=False).to_numpy())

    def floats(self) -> Floats:
        numbers = self._series.cast(_polars().Float64, strict=False).to_numpy()
        return np.array(numbers, dtype=np.float64)  # writable, and NaN in the place of null

    def missing(self) -> Flags:
        return np.array(_is_in(self._series, MISSING).to_numpy())

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        polars = _polars()
        found = self._series.replace_strict(
            list(codes), [float(code) for code in codes.values()], default=other, return_dtype=polars.Float64
        )
        return np.array(found.to_numpy(), dtype=np.float64)


def _is_in(series: Any, cells: Collection[str]) -> Any:
    return series.is_in(_polars().Series(list(cells), dtype=_polars().String).implode())


def _first(places: "np.ndarray[Any, Any]") -> int | None:
    return int(places[0]) if len(places) else None


def _polars() -> Any:
    import polars

    return polars
