"""One column of a schema: which cells it takes, and the numbers they become."""

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from chainrule.heads import Column
from chainrule.option_error import UserError, option
from chainrule.typed_json import field_types, read_fields
from chainrule_app.readers.tables.cell import (
    LARGEST,
    MISSING,
    MOST_DECIMALS,
    as_integer,
    as_number,
    is_missing,
    number_text,
)
from chainrule_app.readers.tables.column_facts import ColumnFacts, ColumnKind
from chainrule_app.readers.tables.columns import CellColumn, Flags, Floats, MomentColumn
from chainrule_app.readers.tables.dates import DateFormat

OTHER = "<other>"
_IMPLIED: dict[str, Any] = {"kind": None, "categories": 0, "decimals": None, "prior": ()}  # of numbers: not written


@dataclass(frozen=True)
class ColumnSchema:
    """Conversion between the cells of a column and numbers."""

    name: str  # of the column
    kind: ColumnKind  # categorical, integer, real, date, or skip for one that is left out
    # texts of a categorical column, in the order of their codes: None is a missing cell, `<other>` for any that is not
    # listed
    categories: tuple[str | None, ...] = ()
    # of an integer or real column, what `chainrule.heads.Column` knows of it
    numbers: Column | None = field(default=None)
    # whether `<other>`, or the missing cell of a numeric column, never occurred in training: it is scored, not
    # sampled
    unseen: bool = False
    # of a real column, the fewest and the most digits after the point; None writes all that a number has. Of an
    # integer column, those with which the file writes integers, as 3.0; they are decoded without
    decimals: tuple[int, int] | None = None
    # of an integer or real column, the lowest and the highest number in training: samples keep to them
    bounds: tuple[float, float] | None = None
    # of the symbols of the head in training, nothing impossible: a model begins with them
    shares: tuple[float, ...] = ()
    # of a date column, whose numbers are integers
    dates: DateFormat | None = None

    def __post_init__(self) -> None:
        numeric, listed = self.kind in ("integer", "real", "date"), self.categories
        if (self.kind == "categorical") != bool(listed) or len(set(listed)) < len(listed):
            raise self._error(f"categories: expected different texts where it is categorical, got {listed!r:.80}")
        if numeric != (self.numbers is not None) or (
            self.numbers is not None and self.numbers.kind != _number_kind(self.kind)
        ):
            raise self._error(f"numbers: expected numbers of kind {self.kind}, got {self.numbers!r:.80}")
        if (self.kind == "date") != (self.dates is not None):
            raise self._error(f"dates: expected dates of kind {self.kind}, got {self.dates}")
        if self.unseen and not (OTHER in listed if self.numbers is None else self.numbers.missing):
            raise self._error("unseen: expected a column that takes such cells")
        fewest, most = self.decimals or (0, 0)
        if not 0 <= fewest <= most <= MOST_DECIMALS:
            raise self._error(f"decimals: expected from 0 to {MOST_DECIMALS}, got {self.decimals}")
        lowest, highest = self.bounds or (0.0, 0.0)
        if lowest > highest:
            raise self._error(f"bounds: expected two numbers in order, got {self.bounds}")
        if self.kind != "skip":
            try:
                self.column()
                if self.dates is not None:
                    list(map(self.dates.text, map(int, self.bounds or ())))
            except (ValueError, OverflowError) as error:  # of values that are not shares, or no dates
                raise self._error(str(error)) from None

    @classmethod
    def fit(cls, facts: ColumnFacts, kind: ColumnKind, min_count: int) -> "ColumnSchema":
        """Return the schema of training cells; with `min_count` > 1 it takes unseen categories and missing numbers."""
        if kind == "skip":
            return cls(facts.name, kind)
        facts.check(kind, min_count)
        if kind != "categorical":
            numbers = facts.numbers(_number_kind(kind), missing=facts.missing > 0 or min_count > 1)
            return cls(
                facts.name,
                kind,
                numbers=numbers,
                unseen=not facts.missing and min_count > 1,
                decimals=facts.decimals() if kind == "real" or facts.gaps else None,
                bounds=(facts.lowest, facts.highest),
                shares=facts.number_shares(numbers),
                dates=facts.dates if kind == "date" else None,
            )
        categories = facts.categories(min_count)
        added = min_count > 1 and OTHER not in categories
        unseen = added and len(categories) == facts.distinct
        listed = (*categories, *([OTHER] if added else []), *([None] if facts.missing else []))
        return cls(facts.name, kind, listed, unseen=unseen, shares=facts.category_shares(listed, OTHER))

    def column(self) -> Column:
        """Return the column as a head takes it."""
        column = self.numbers or Column("categorical", categories=len(self.categories))
        return replace(column, prior=self.shares)

    def is_missing(self, cell: str | None) -> bool:
        """Return whether a cell says that there is nothing; a text that training had as a category says itself."""
        return is_missing(cell) and (cell is None or cell not in self._codes)

    def encode(self, cell: str | None) -> float:
        """Return the number of a cell: a code, the number itself, or NaN."""
        if self.numbers is None:
            known = None if self.is_missing(cell) else cell
            code = self._codes.get(known, self._codes.get(OTHER))
            if code is None and known is None:
                raise self._error("an empty cell, though the column had none in training: fill it in")
            if code is None:
                texts = [category for category in self.categories if category is not None]
                raise self._error(
                    f"the category {cell!r} was not in training (known: {', '.join(texts[:8])}"
                    f"{', …' if len(texts) > 8 else ''}): correct it, or train with {option('min_count')} 2 or more, "
                    f"which keeps a category {OTHER}"
                )
            return float(code)
        if cell is None or cell in MISSING:
            if self.numbers.missing:
                return math.nan
            raise self._error("an empty cell, though the column had none in training: fill it in")
        if self.dates is not None:
            date = self.dates.number(cell)
            if date is None:
                raise self._error(f"expected a date such as {self.decode(self.numbers.centre)}, got {cell!r}")
            return float(date)
        number = as_number(cell)
        if number is None:
            raise self._error(f"expected a number, got {cell!r}")
        if math.isinf(number):
            raise self._error(f"expected a finite number, got {cell!r}: correct it, or leave the cell empty")
        if self.kind == "integer":
            # "12.0" is an integer too, in a file that another program wrote.
            if as_integer(cell) is None and not (number.is_integer() and abs(number) <= LARGEST):
                most = f" of at most {LARGEST:,}" if number.is_integer() else ""
                raise self._error(f"expected an integer{most}, got {cell!r}")
            if self.numbers.low is not None and number < self.numbers.low:
                raise self._error(f"expected an integer >= {self.numbers.low}, as in training, got {cell!r}")
        return number

    def encode_cells(self, cells: CellColumn) -> tuple[Floats, int | None]:
        """Return the numbers of cells as `encode` gives them, and the index of the first refused cell or None."""
        if self.numbers is None:
            other = float(self._codes.get(OTHER, math.nan))
            missing = self._codes.get(None)
            if isinstance(cells, MomentColumn):
                cells = cells.as_texts()
            own = {category: code for category, code in self._codes.items() if category is not None}
            if missing is not None:
                own = dict.fromkeys(cells.missing_texts, missing) | own
            values = cells.codes(own, other)
            values[cells.nulls()] = other if missing is None else missing
            return values, _first(np.isnan(values))
        if self.dates is not None:
            cells = self.dates.integers(cells)
        elif isinstance(cells, MomentColumn):
            cells = cells.as_texts()
        values = cells.numbers(fraction=False).values
        return values, _first(self._refused(cells, values))

    def _refused(self, cells: CellColumn, values: Floats) -> Flags:
        """Return which cells a numeric column does not take."""
        assert self.numbers is not None
        bad = np.isnan(values)
        if self.numbers.missing:
            bad &= ~cells.missing()
        if self.numbers.kind == "integer":
            with np.errstate(invalid="ignore"):
                bad |= (values != np.floor(values)) & ~np.isnan(values) | (np.abs(values) > LARGEST)
                bad |= values < (-math.inf if self.numbers.low is None else self.numbers.low)
        return bad

    def decode(self, value: float) -> str | None:
        """Return the cell of a number: inside the range and with the digits of the training rows; None if missing."""
        if self.numbers is None:
            return self.categories[int(value)]
        if math.isnan(value):
            return None
        if self.bounds is not None:
            value = min(max(value, self.bounds[0]), self.bounds[1])
            if self.dates is not None:
                return self.dates.text(int(value))
        return number_text(value, whole=self.kind == "integer", decimals=self.decimals)

    def parsed(self, cell: str | None) -> int | float | str | None:
        """Return the value that a cell spells: a number, a category, or None where it is missing."""
        if cell is None or self.is_missing(cell):
            return None
        if self.kind == "integer" or (self.kind == "skip" and as_integer(cell) is not None):
            return int(float(cell)) if as_integer(cell) is None else int(cell)
        return float(cell) if self.kind == "real" else cell

    def values(self, cells: CellColumn, numbers: Floats) -> list[int | float | str | None]:
        """Return what `parsed` makes of each cell, from the cells and the numbers that encode them."""
        if self.kind in ("integer", "real"):
            gaps = np.isnan(numbers)
            filled = np.where(gaps, 0.0, numbers)
            values: list[int | float | str | None] = (
                filled.astype(np.int64) if self.kind == "integer" else filled
            ).tolist()
            for index in np.flatnonzero(gaps).tolist():
                values[index] = None
            return values
        return list(map(self.parsed, cells.texts()))

    def unseen_cells(self, cells: CellColumn, numbers: Floats) -> Flags:
        """Return which cells are not `seen`."""
        flags = np.zeros(len(numbers), dtype=np.bool_)
        if self.numbers is None and OTHER in self._codes:
            coded_as_other = np.flatnonzero(numbers == self._codes[OTHER])
            flags[coded_as_other] = [not self.seen(cells.cell(index)) for index in coded_as_other.tolist()]
        return flags

    def unseen_symbol(self) -> int | None:
        """Return the symbol of the head for cells that training lacked; None where it had all."""
        if not self.unseen:
            return None
        return self._codes[OTHER] if self.numbers is None else self.numbers.symbols - 2

    def missing_symbol(self) -> int | None:
        """Return the symbol of the head for a missing cell; None where it has none."""
        if self.numbers is None:
            return self._codes.get(None)
        return self.numbers.symbols - 2 if self.numbers.missing else None

    def other_symbol(self) -> int | None:
        """Return the symbol of the head for a category that is not listed; None where it has none."""
        return self._codes.get(OTHER) if self.numbers is None else None

    def seen(self, cell: str | None) -> bool:
        """Return whether a cell has a code or is a number; any other category is coded as `<other>`."""
        return self.numbers is not None or (None if self.is_missing(cell) else cell) in self._codes

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON takes it."""
        content = asdict(self)
        if self.numbers is not None:
            content["numbers"] = {name: value for name, value in content["numbers"].items() if name not in _IMPLIED}
        return content

    @classmethod
    def from_json(cls, content: Any) -> "ColumnSchema":
        """Check and read what `to_json` made; raise ValueError for anything else."""
        if isinstance(content, dict) and isinstance(content.get("numbers"), dict):
            numbers = _IMPLIED | {"kind": _number_kind(content.get("kind"))} | content["numbers"]
            content = content | {"numbers": numbers}
        return cls(**read_fields(field_types(cls), content, "column"))

    @cached_property
    def _codes(self) -> dict[str | None, int]:
        return {category: code for code, category in enumerate(self.categories)}

    def _error(self, what: str) -> UserError:
        return UserError(f"column {self.name!r}: {what}")


def _number_kind(kind: Any) -> Any:
    """Return the kind of number in a column: dates are integers."""
    return "integer" if kind == "date" else kind


def _first(bad: Flags) -> int | None:
    return int(bad.argmax()) if bad.any() else None
