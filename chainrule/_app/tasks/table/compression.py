"""A CSV file as rows of a table and the few lines that they cannot express, and back, byte for byte."""

import copy
import json
import lzma
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from chainrule._app.tasks.abilities import Expressed, FileCodec
from chainrule.coding._batches import RowLayout, layout_rows
from chainrule.coding._container import unpacked
from chainrule.data._delimited import DECIMAL_COMMA, may_have_decimal_commas
from chainrule.data._tables.cell_column import LARGEST, MISSING, MOST_DECIMALS, as_number, decimals, number_text

if TYPE_CHECKING:
    from chainrule.data._tables.column_schema import ColumnSchema
    from chainrule.data._tables.schema import TableSchema
    from chainrule.models import TableMADE

SEPARATORS = (", ", ",", ";", "\t", "|")
_FIRST_LINES = 50  # that tell the separator
ROWS = 1024  # coded side by side
_LINE = 200.0  # bits of a line that is kept as it is, roughly
_SWAP = str.maketrans(".,", ",.")
Digits = tuple[int, int] | None  # the fewest and the most after the point


class TableCodec(FileCodec):
    """Lines of CSV as rows of numbers.

    A line whose cells the columns take, and write again as they were, is a row; any other is kept as it is, the header
    among them. The cells of columns that the model leaves out are kept as text.

    Cells of a real column are numbers with so many digits after the point, chosen for the file: multiples of a power of
    ten, each with the probability of what is rounded to it. That is −log₂ of the density there and of the power of ten,
    where the density is even over such a step.

    Args:
        schema: the columns of the run.
    """

    def __init__(self, schema: "TableSchema"):
        self.schema = schema
        self.places = [place for place, column in enumerate(schema.columns) if column in schema.kept]
        self._reals = {place for place, column in enumerate(schema.columns) if column.kind == "real"}

    def express(self, files: Mapping[str, bytes]) -> Expressed:
        lines = b"".join(files.values()).decode("utf-8", "surrogateescape").split("\n")
        separator, end = self._separator(lines), "\r" if lines[0].endswith("\r") else ""
        table = [line.removesuffix(end).split(separator) if line.endswith(end) else [] for line in lines]
        comma = may_have_decimal_commas(separator) and self._has_commas(table)
        table = [self._swapped(cells) for cells in table] if comma else table
        digits = self._digits([cells for cells in table if len(cells) == len(self.schema.columns)])
        rows, left_out, other_cells = [], [], []
        for number, (line, cells) in enumerate(zip(lines, table, strict=True)):
            row = self._row(cells, digits)
            if row is None:
                left_out.append((number, line))
            else:
                rows.append(row)
                other_cells.append([cell for place, cell in enumerate(cells) if place not in self.places])
        if len(rows) < len(lines) / 2:
            raise ValueError(f"{len(left_out):,} of its {len(lines):,} lines are no rows of the run's columns")
        others = other_cells if any(other_cells) else []
        kept = {"lines": left_out, "cells": others, "separator": separator, "end": end, "comma": comma}
        layout = {"count": len(rows), "digits": digits}
        x = torch.from_numpy(np.array(rows, dtype=np.float64))
        side = lzma.compress(json.dumps(kept).encode(), lzma.FORMAT_ALONE, preset=9)
        return Expressed(layout, side, self.lay_out(layout, x), len(rows), "row")

    def ready(self, model: "TableMADE", layout: dict[str, Any]) -> "TableMADE":
        """The model, which codes real columns in the digits of the file."""
        made = copy.copy(model)  # its weights are shared
        made.layout = model.layout.coded_with([None if digits is None else digits[1] for digits in layout["digits"]])
        return made

    def lay_out(self, layout: dict[str, Any], elements: Tensor | None = None) -> RowLayout:
        return layout_rows(layout["count"], len(self.places), elements, most=ROWS)

    def restore(
        self, layout: dict[str, Any], side: bytes | None, elements: Sequence[Tensor], lost: set[int], most: int
    ) -> bytes:
        """The file; where rows are lost, the header and the other rows."""
        kept: dict[str, Any] = {"lines": [], "cells": [], "separator": ",", "end": "", "comma": False}
        if side:
            kept |= json.loads(unpacked(side, most))
        texts = list(zip(self.schema.kept, layout["digits"], strict=True))
        cells = [
            [_text(column, value, digits) for value, (column, digits) in zip(row, texts, strict=True)]
            for row in torch.cat(list(elements))[: layout["count"]].tolist()
        ]
        size = len(elements[0])
        rows = [None if number % size in lost else row for number, row in enumerate(cells)]
        if kept["cells"]:
            rows = [
                None if row is None else self._with(row, more) for row, more in zip(rows, kept["cells"], strict=True)
            ]
        left_out, regular = dict(kept["lines"]), iter(rows)
        lines = []
        for number in range(len(rows) + len(left_out)):
            row = None if number in left_out else next(regular)
            if number in left_out:
                lines.append(left_out[number])
            elif row is not None:
                lines.append(kept["separator"].join(self._swapped(row) if kept["comma"] else row) + kept["end"])
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _separator(self, lines: Sequence[str]) -> str:
        """The separator by which the most of the first lines have as many cells as there are columns."""
        count = len(self.schema.columns)
        found = {mark: sum(len(line.split(mark)) == count for line in lines[:_FIRST_LINES]) for mark in SEPARATORS}
        mark = max(found, key=lambda mark: found[mark])
        if not found[mark]:
            raise ValueError(f"none of its first lines has the {count} cells of the run's columns")
        return mark

    def _digits(self, table: Sequence[Sequence[str]]) -> list[Digits]:
        """The digits of each column that the model knows; `None` where it is not one of real numbers."""
        return [
            _digits(Counter(cells[place] for cells in table)) if column.kind == "real" else None
            for place, column in zip(self.places, self.schema.kept, strict=True)
        ]

    def _has_commas(self, table: Sequence[Sequence[str]]) -> bool:
        """Whether a number of a real column has a decimal comma."""
        width = len(self.schema.columns)
        rows = (cells for cells in table if len(cells) == width)
        return any(DECIMAL_COMMA.fullmatch(cells[place]) for cells in rows for place in self._reals)

    def _swapped(self, cells: Sequence[str]) -> list[str]:
        """The cells of a line with points and commas of real numbers exchanged, which a second time undoes."""
        swap = len(cells) == len(self.schema.columns)
        return [cell.translate(_SWAP) if swap and place in self._reals else cell for place, cell in enumerate(cells)]

    def _row(self, cells: list[str], digits: Sequence[Digits]) -> list[float] | None:
        """The numbers of a line, where they bring its cells back."""
        if len(cells) != len(self.schema.columns):
            return None
        own = [cells[place] for place in self.places]
        try:
            row = [column.encode(cell) for column, cell in zip(self.schema.kept, own, strict=True)]
        except ValueError:
            return None
        every = list(zip(self.schema.kept, row, digits, strict=True))
        back = [_text(*each) for each in every] == own and all(_fits(value, digits) for _, value, digits in every)
        return row if back else None

    def _with(self, row: list[str], more: list[str]) -> list[str]:
        """The cells of a line, those of columns that the model leaves out among them."""
        own, others = iter(row), iter(more)
        return [next(own) if place in self.places else next(others) for place in range(len(self.schema.columns))]


def _digits(cells: Counter[str]) -> Digits:
    """The digits after the point with which cells of real numbers are written in the fewest bits."""
    numbers = {cell: count for cell, count in cells.items() if cell not in MISSING and as_number(cell) is not None}
    places = {cell: after for cell in numbers if (after := decimals(cell)) is not None and after <= MOST_DECIMALS}
    best, least = (0, 0), math.inf
    for most in sorted(set(places.values())):
        fitting = [cell for cell, after in places.items() if after <= most and _fits(float(cell), (0, most))]
        for fewest in sorted({0, min(1, most), most}):
            back = sum(numbers[cell] for cell in fitting if _number(float(cell), (fewest, most)) == cell)
            cost = back * most * math.log2(10) + (sum(numbers.values()) - back) * _LINE
            if cost < least:
                best, least = (fewest, most), cost
    return best


def _fits(value: float, digits: Digits) -> bool:
    """Whether a number times a power of ten is rounded to the whole number that it spells."""
    return digits is None or math.isnan(value) or abs(value) * 10.0 ** digits[1] < LARGEST / 4


def _text(column: "ColumnSchema", value: float, digits: Digits) -> str:
    """The cell of a number, also outside the range of the training rows."""
    if column.numbers is None:
        return column.decode(value)
    return _number(value, digits or column.decimals)


def _number(value: float, digits: Digits) -> str:
    return number_text(value, whole=digits is None, decimals=digits)
