"""A CSV file as rows of a table and the few lines that they cannot express, and back, byte for byte."""

import json
import lzma
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from chainrule.coding.batches import Laid, lay_rows
from chainrule.tasks.abilities import Expressed, FileCodec

if TYPE_CHECKING:
    from chainrule.data.tables.schema import TableSchema

SEPARATORS = (", ", ",", ";", "\t", "|")
ROWS = 1024  # coded side by side


class TableCodec(FileCodec):
    """Lines of CSV as rows of numbers.

    A line whose cells the columns take, and write again as they were, is a row; any other is kept as it is, the header
    among them. The cells of columns that the model leaves out are kept as text.

    Args:
        schema: the columns of the run.
    """

    def __init__(self, schema: "TableSchema"):
        self.schema = schema
        self.places = [place for place, column in enumerate(schema.columns) if column in schema.kept]

    def express(self, files: Sequence[bytes]) -> Expressed:
        if any(column.kind == "real" for column in self.schema.kept):
            raise ValueError("a column of real numbers has a density: no probability of its cells")
        lines = b"".join(files).decode("utf-8", "surrogateescape").split("\n")
        separator, end = self._separator(lines), "\r" if lines[0].endswith("\r") else ""
        rows, left_out, beside = [], [], []
        for number, line in enumerate(lines):
            cells = line.removesuffix(end).split(separator)
            row = self._row(cells) if line.endswith(end) else None
            if row is None:
                left_out.append((number, line))
            else:
                rows.append(row)
                beside.append([cell for place, cell in enumerate(cells) if place not in self.places])
        if len(rows) < len(lines) / 2:
            raise ValueError(f"{len(left_out):,} of its {len(lines):,} lines are no rows of the run's columns")
        kept = {"lines": left_out, "cells": beside if any(beside) else [], "separator": separator, "end": end}
        layout = {"count": len(rows)}
        x = torch.from_numpy(np.array(rows, dtype=np.float64))
        side = lzma.compress(json.dumps(kept).encode(), lzma.FORMAT_ALONE, preset=9)
        return Expressed(layout, side, self._laid(layout, x), len(rows), "row")

    def lay_out(self, layout: dict[str, Any]) -> Laid:
        return self._laid(layout, None)

    def _laid(self, layout: dict[str, Any], x: Tensor | None) -> Laid:
        return lay_rows(layout["count"], len(self.places), x, most=ROWS)

    def restore(self, layout: dict[str, Any], side: bytes | None, elements: Sequence[Tensor], lost: set[int]) -> bytes:
        """The file; where rows are lost, the header and the other rows."""
        kept: dict[str, Any] = {"lines": [], "cells": [], "separator": ",", "end": ""}
        if side:
            kept = json.loads(lzma.decompress(side))
        cells = self.schema.decode(torch.cat(list(elements))[: layout["count"]].numpy())
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
                lines.append(kept["separator"].join(row) + kept["end"])
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _separator(self, lines: Sequence[str]) -> str:
        """The separator by which the first line has as many cells as there are columns."""
        count = len(self.schema.columns)
        found = [mark for mark in SEPARATORS if len(lines[0].split(mark)) == count]
        if not found:
            raise ValueError(f"its first line has not the {count} cells of the run's columns")
        return found[0]

    def _row(self, cells: list[str]) -> list[float] | None:
        """The numbers of a line, where they bring its cells back."""
        if len(cells) != len(self.schema.columns):
            return None
        own = [cells[place] for place in self.places]
        try:
            row = [column.encode(cell) for column, cell in zip(self.schema.kept, own, strict=True)]
        except ValueError:
            return None
        again = [column.decode(value) for column, value in zip(self.schema.kept, row, strict=True)]
        return row if again == own else None

    def _with(self, row: list[str], more: list[str]) -> list[str]:
        """The cells of a line, those of columns that the model leaves out among them."""
        own, others = iter(row), iter(more)
        return [next(own) if place in self.places else next(others) for place in range(len(self.schema.columns))]
