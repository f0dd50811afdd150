"""One column of a schema: which cells it takes, and the numbers they become."""

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from chainrule.data.tables.cell_column import (
    LARGEST,
    MISSING,
    MOST_DECIMALS,
    CellColumn,
    Flags,
    Floats,
    as_integer,
    as_number,
    number_text,
)
from chainrule.data.tables.column_facts import COLUMN_KINDS, ColumnFacts, ColumnKind
from chainrule.heads.column import Column

OTHER = "<other>"
_KEYS = {"name", "kind", "categories", "numbers", "unseen", "decimals", "bounds"}
_N = TypeVar("_N", int, float)
_NUMBERS = {"atoms", "missing", "centre", "scale", "low", "finest"}


@dataclass(frozen=True)
class ColumnSchema:
    """How the cells of a column become numbers and numbers become cells.

    Args:
        name: of the column.
        kind: categorical, integer, real, or skip for one that is left out.
        categories: texts of a categorical column, in the order of their codes: "" is a missing cell, `<other>`
            for any that is not listed.
        numbers: of an integer or real column, what `chainrule.heads.Column` knows of it.
        unseen: whether `<other>`, or the missing cell of a numeric column, never occurred in training: it is scored,
            not sampled.
        decimals: of a real column, the fewest and the most digits after the point; None writes all that a number has.
        bounds: of an integer or real column, the lowest and the highest number in training: samples keep to them.

    >>> colour = ColumnSchema("colour", "categorical", ("blue", "red", ""))
    >>> colour.encode("red"), colour.encode("?"), colour.decode(2.0)
    (1.0, 2.0, '')
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()
    numbers: Column | None = field(default=None)
    unseen: bool = False
    decimals: tuple[int, int] | None = None
    bounds: tuple[float, float] | None = None

    @classmethod
    def fit(cls, facts: ColumnFacts, kind: ColumnKind, min_count: int) -> "ColumnSchema":
        """The schema of a column of training rows.

        Args:
            facts: statistics of its cells.
            kind: categorical, integer, real or skip.
            min_count: rarer categories become `<other>`. Above 1 each column takes what it never saw: a categorical one
                as `<other>`, a numeric one a missing cell.

        Raises:
            ValueError: the column cannot be of that kind, or has nothing to learn.
        """
        if kind == "skip":
            return cls(facts.name, kind)
        facts.check(kind)
        if kind != "categorical":
            return cls(
                facts.name,
                kind,
                numbers=facts.numbers(kind, missing=facts.missing > 0 or min_count > 1),
                unseen=not facts.missing and min_count > 1,
                decimals=facts.decimals() if kind == "real" else None,
                bounds=(facts.lowest, facts.highest),
            )
        categories = facts.categories(min_count)
        added = min_count > 1 and OTHER not in categories
        unseen = added and len(categories) == facts.distinct
        categories += [OTHER] if added else []
        return cls(facts.name, kind, (*categories, *([""] if facts.missing else [])), unseen=unseen)

    def column(self) -> Column:
        """As a head takes it."""
        return self.numbers or Column("categorical", categories=len(self.categories))

    def encode(self, cell: str) -> float:
        """The number of a cell: a code, the number itself, or NaN.

        Raises:
            ValueError: the column takes no such cell; the message names the column and the cell, not the file.
        """
        if self.numbers is None:
            code = self._codes.get("" if cell in MISSING else cell, self._codes.get(OTHER))
            if code is None and cell in MISSING:
                raise self._error("a missing cell, though none was missing in training: fill it in")
            if code is None:
                raise self._error(
                    f"the category {cell!r} was not in training (known: {', '.join(self.categories[:8])}"
                    f"{', …' if len(self.categories) > 8 else ''}): correct it, or train with --min-count 2 or more, "
                    f"which keeps a category {OTHER}"
                )
            return float(code)
        if cell in MISSING:
            if self.numbers.missing:
                return math.nan
            raise self._error("a missing cell, though none was missing in training: fill it in")
        number = as_number(cell)
        if number is None:
            raise self._error(f"expected a number, got {cell!r}")
        if math.isinf(number):
            raise self._error(f"expected a finite number, got {cell!r}: correct it, or leave the cell empty")
        if self.kind == "integer":
            # "12.0" is an integer too, in a file that another program wrote.
            if as_integer(cell) is None and not (number.is_integer() and abs(number) <= LARGEST):
                raise self._error(f"expected an integer, got {cell!r}")
            if self.numbers.low is not None and number < self.numbers.low:
                raise self._error(f"expected an integer >= {self.numbers.low}, as in training, got {cell!r}")
        return number

    def encode_cells(self, cells: CellColumn, checked: Flags | None = None) -> tuple[Floats, int | None]:
        """The numbers of cells as `encode` gives them, and the place of the first that it refuses, if there is one.

        Args:
            cells: of some rows.
            checked: (N,) which are of training rows, from which the schema was made: the column takes those. None where
                none are.
        """
        if self.numbers is None:
            other = float(self._codes.get(OTHER, math.nan))
            missing = self._codes.get("")
            known = self._codes if missing is None else self._codes | dict.fromkeys(MISSING, missing)
            values = cells.codes(known, other)
            return values, _first(np.isnan(values))
        if checked is None:
            values = cells.numbers(fraction=False).values
            return values, _first(self._refused(cells, values))
        values, rest = cells.floats(), cells.part(~checked)
        values[~checked] = rest.numbers(fraction=False).values
        bad = _first(self._refused(rest, values[~checked]))
        return values, None if bad is None else int(np.flatnonzero(~checked)[bad])

    def _refused(self, cells: CellColumn, values: Floats) -> Flags:
        """Which cells a numeric column does not take."""
        assert self.numbers is not None
        bad = np.isnan(values)
        if self.numbers.missing:
            bad &= ~cells.missing()
        if self.kind == "integer":
            with np.errstate(invalid="ignore"):
                bad |= (values != np.floor(values)) & ~np.isnan(values) | (np.abs(values) > LARGEST)
                bad |= values < (-math.inf if self.numbers.low is None else self.numbers.low)
        return bad

    def decode(self, value: float) -> str:
        """The cell of a number: inside the range of the training rows, with as many digits as they have."""
        if self.numbers is None:
            return self.categories[int(value)]
        if self.bounds is not None and not math.isnan(value):
            value = min(max(value, self.bounds[0]), self.bounds[1])
        return number_text(value, whole=self.kind == "integer", decimals=self.decimals)

    def unseen_symbol(self) -> int | None:
        """The symbol of the head for cells that training lacked; None where it had all."""
        if not self.unseen:
            return None
        return self._codes[OTHER] if self.numbers is None else self.numbers.symbols - 2

    def seen(self, cell: str) -> bool:
        """Whether a cell is a category without a code of its own, coded as `<other>`."""
        return self.numbers is not None or ("" if cell in MISSING else cell) in self._codes

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        numbers = None
        if self.numbers is not None:
            known = asdict(self.numbers)
            numbers = {name: known[name] for name in sorted(_NUMBERS)} | {"atoms": list(self.numbers.atoms)}
        return {
            "name": self.name,
            "kind": self.kind,
            "categories": list(self.categories),
            "numbers": numbers,
            "unseen": self.unseen,
            "decimals": None if self.decimals is None else list(self.decimals),
            "bounds": None if self.bounds is None else list(self.bounds),
        }

    @classmethod
    def from_json(cls, content: Any) -> "ColumnSchema":
        """Check and read what `to_json` made.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(content, dict) or content.keys() != _KEYS:
            raise ValueError(f"column: expected the keys {', '.join(sorted(_KEYS))}, got {content!r:.80}")
        name, kind, categories, numbers = (content[key] for key in ("name", "kind", "categories", "numbers"))
        if not isinstance(name, str) or kind not in COLUMN_KINDS or not isinstance(categories, list):
            raise ValueError(f"column: expected a name, a kind and a list of categories, got {content!r:.80}")
        if not all(isinstance(category, str) for category in categories) or len(set(categories)) < len(categories):
            raise ValueError(f"column {name!r}: expected categories that are different texts, got others")
        if (kind == "categorical") != bool(categories) or (kind in ("integer", "real")) != (numbers is not None):
            raise ValueError(f"column {name!r}: categories and numbers do not fit the kind {kind}")
        column = None if numbers is None else _column(name, kind, numbers)
        unseen, digits, bounds = content["unseen"], content["decimals"], content["bounds"]
        known = OTHER in categories if column is None else column.missing
        if type(unseen) is not bool or (unseen and not known):
            raise ValueError(f"column {name!r}: unseen: expected a boolean that fits the column, got {unseen!r:.80}")
        fewest, most = _pair(name, "decimals", digits, int) or (0, 0)
        if not 0 <= fewest <= most <= MOST_DECIMALS:
            raise ValueError(f"column {name!r}: decimals: expected from 0 to {MOST_DECIMALS}, got {digits!r:.80}")
        lowest, highest = _pair(name, "bounds", bounds, float) or (0.0, 0.0)
        if not -math.inf < lowest <= highest < math.inf:
            raise ValueError(f"column {name!r}: bounds: expected two finite numbers in order, got {bounds!r:.80}")
        return cls(
            name,
            kind,
            tuple(categories),
            column,
            unseen,
            None if digits is None else (fewest, most),
            None if bounds is None else (lowest, highest),
        )

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {category: code for code, category in enumerate(self.categories)}

    def _error(self, what: str) -> ValueError:
        return ValueError(f"column {self.name!r}: {what}")


def _first(bad: Flags) -> int | None:
    return int(bad.argmax()) if bad.any() else None


def _pair(name: str, key: str, content: Any, kind: type[_N]) -> tuple[_N, _N] | None:
    if content is None:
        return None
    allowed = (int,) if kind is int else (int, float)
    if not isinstance(content, list) or len(content) != 2 or any(type(value) not in allowed for value in content):
        raise ValueError(f"column {name!r}: {key}: expected two numbers or null, got {content!r:.80}")
    return kind(content[0]), kind(content[1])


def _column(name: str, kind: Any, numbers: Any) -> Column:
    fits = isinstance(numbers, dict) and numbers.keys() == _NUMBERS
    if fits:
        floats = [numbers["centre"], numbers["scale"], numbers["finest"]]
        fits = isinstance(numbers["atoms"], list) and type(numbers["missing"]) is bool
        fits = fits and (numbers["low"] is None or type(numbers["low"]) is int)
        fits = fits and all(
            type(value) in (int, float) and math.isfinite(value) for value in [*floats, *numbers["atoms"]]
        )
    if not fits:
        raise ValueError(f"column {name!r}: expected {', '.join(sorted(_NUMBERS))}, got {numbers!r:.80}")
    return Column(kind, **(numbers | {"atoms": tuple(map(float, numbers["atoms"]))}))
