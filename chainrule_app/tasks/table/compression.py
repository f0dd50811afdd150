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

from chainrule.coding._batches import RowLayout, layout_rows
from chainrule.coding._container import unpacked
from chainrule_app.readers.delimited import DECIMAL_COMMA, may_have_decimal_commas
from chainrule_app.readers.tables.cell import LARGEST, MISSING, MOST_DECIMALS, as_number, decimals, number_text
from chainrule_app.tasks.capabilities import EncodedFiles, FileCodec

if TYPE_CHECKING:
    from chainrule.models import TableMADE
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.readers.tables.prepare import TableSchema

SEPARATORS = (", ", ",", ";", "\t", "|")
_FIRST_LINES = 50  # that tell the separator
ROWS = 1024  # coded side by side
_LINE = 200.0  # bits of a line that is kept as it is, roughly
_SWAP = str.maketrans(".,", ",.")
Digits = tuple[int, int] | None  # the fewest and the most after the point


class TableCodec(FileCodec):
    """Codec of CSV lines as rows of numbers; lines that do not fit the columns are stored."""

    def __init__(self, schema: "TableSchema"):
        self.schema = schema
        self.places = [index for index, column in enumerate(schema.columns) if column in schema.kept]
        self._reals = {index for index, column in enumerate(schema.columns) if column.kind == "real"}

    def express(self, files: Mapping[str, bytes]) -> EncodedFiles:
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
                other_cells.append([cell for index, cell in enumerate(cells) if index not in self.places])
        if len(rows) < len(lines) / 2:
            raise ValueError(f"{len(left_out):,} of its {len(lines):,} lines are no rows of the run's columns")
        others = other_cells if any(other_cells) else []
        side_data = {"lines": left_out, "cells": others, "separator": separator, "end": end, "comma": comma}
        layout = {"count": len(rows), "digits": digits}
        x = torch.from_numpy(np.array(rows, dtype=np.float64))
        side = lzma.compress(json.dumps(side_data).encode(), lzma.FORMAT_ALONE, preset=9)
        return EncodedFiles(layout, side, self.lay_out(layout, x), len(rows), "row")

    def ready(self, model: "TableMADE", layout: dict[str, Any]) -> "TableMADE":
        """Return the model with real columns coded in the file's digits."""
        digit_model = copy.copy(model)  # its weights are shared
        digit_model.layout = model.layout.coded_with(
            [None if digits is None else digits[1] for digits in layout["digits"]]
        )
        return digit_model

    def lay_out(self, layout: dict[str, Any], elements: Tensor | None = None) -> RowLayout:
        return layout_rows(layout["count"], len(self.places), elements, most=ROWS)

    def restore(
        self, layout: dict[str, Any], side: bytes | None, elements: Sequence[Tensor], lost: set[int], most: int
    ) -> bytes:
        """Decode the file; without lost rows."""
        side_data: dict[str, Any] = {"lines": [], "cells": [], "separator": ",", "end": "", "comma": False}
        if side:
            side_data |= json.loads(unpacked(side, most))
        texts = list(zip(self.schema.kept, layout["digits"], strict=True))
        cells = [
            [_text(column, value, digits) for value, (column, digits) in zip(row, texts, strict=True)]
            for row in torch.cat(list(elements))[: layout["count"]].tolist()
        ]
        size = len(elements[0])
        rows = [None if number % size in lost else row for number, row in enumerate(cells)]
        if side_data["cells"]:
            rows = [
                None if row is None else self._with(row, more)
                for row, more in zip(rows, side_data["cells"], strict=True)
            ]
        left_out, regular = dict(side_data["lines"]), iter(rows)
        lines = []
        for number in range(len(rows) + len(left_out)):
            row = None if number in left_out else next(regular)
            if number in left_out:
                lines.append(left_out[number])
            elif row is not None:
                lines.append(
                    side_data["separator"].join(self._swapped(row) if side_data["comma"] else row) + side_data["end"]
                )
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _separator(self, lines: Sequence[str]) -> str:
        """Find the separator that gives most of the first lines the schema's cell count."""
        count = len(self.schema.columns)
        counts = {mark: sum(len(line.split(mark)) == count for line in lines[:_FIRST_LINES]) for mark in SEPARATORS}
        mark = max(counts, key=lambda mark: counts[mark])
        if not counts[mark]:
            raise ValueError(f"none of its first lines has the {count} cells of the run's columns")
        return mark

    def _digits(self, table: Sequence[Sequence[str]]) -> list[Digits]:
        """Choose the digits of each modelled column; None unless it is real."""
        return [
            _digits(Counter(cells[index] for cells in table)) if column.kind == "real" else None
            for index, column in zip(self.places, self.schema.kept, strict=True)
        ]

    def _has_commas(self, table: Sequence[Sequence[str]]) -> bool:
        """Tell if a real column uses decimal commas."""
        width = len(self.schema.columns)
        rows = (cells for cells in table if len(cells) == width)
        return any(DECIMAL_COMMA.fullmatch(cells[index]) for cells in rows for index in self._reals)

    def _swapped(self, cells: Sequence[str]) -> list[str]:
        """Exchange points and commas in real numbers; applied twice, it changes nothing."""
        swap = len(cells) == len(self.schema.columns)
        return [cell.translate(_SWAP) if swap and index in self._reals else cell for index, cell in enumerate(cells)]

    def _row(self, cells: list[str], digits: Sequence[Digits]) -> list[float] | None:
        """Encode a line, if its cells can be restored exactly."""
        if len(cells) != len(self.schema.columns):
            return None
        own = [cells[index] for index in self.places]
        try:
            row = [column.encode(cell) for column, cell in zip(self.schema.kept, own, strict=True)]
        except ValueError:
            return None
        every = list(zip(self.schema.kept, row, digits, strict=True))
        back = [_text(*each) for each in every] == own and all(_fits(value, digits) for _, value, digits in every)
        return row if back else None

    def _with(self, row: list[str], more: list[str]) -> list[str]:
        """Merge the cells of modelled columns with the other cells."""
        own, others = iter(row), iter(more)
        return [next(own) if index in self.places else next(others) for index in range(len(self.schema.columns))]


def _digits(cells: Counter[str]) -> Digits:
    """Choose the decimals that write the cells in the fewest bits."""
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
    """Tell if a number, scaled by a power of ten, rounds to the whole number that it spells."""
    return digits is None or math.isnan(value) or abs(value) * 10.0 ** digits[1] < LARGEST / 4


def _text(column: "ColumnSchema", value: float, digits: Digits) -> str:
    """Format the cell of a number, also outside the training range."""
    if column.numbers is None:
        return column.decode(value) or ""
    if column.dates is not None:
        return "" if math.isnan(value) else column.dates.text(int(value))
    return _number(value, digits or column.decimals)


def _number(value: float, digits: Digits) -> str:
    return number_text(value, whole=digits is None, decimals=digits)
