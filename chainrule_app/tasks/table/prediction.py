"""Predict any cells of a table from the others."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from secrets import randbelow
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from chainrule.option_error import OptionError
from chainrule.ranges import Range
from chainrule_app.batchwise import Answered, block_seed
from chainrule_app.blocks import in_blocks
from chainrule_app.heavy import modes, torch
from chainrule_app.pages.result_figures import predicted_figure
from chainrule_app.printing import counted
from chainrule_app.readers.origin import DataSource
from chainrule_app.results import Column, Result
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.options import Particles, Seed
from chainrule_app.tasks.table.evidence import Evidence
from chainrule_app.tasks.table.gaps import complete_block, empty_columns, restricted

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.decoding import Conditional
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.readers.tables.partial_row import PartialRow
    from chainrule_app.readers.tables.prepare import TableSchema
    from chainrule_app.tasks.table.task import TableTask

_ROWS = 1024  # read together, and grouped by their gaps
_TOGETHER = 1 << 14  # particles
_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)  # quantiles in JSON
TOLERANCE = 1e-4  # of integrals, as a share
_HIDDEN = ("mean", "median", "mode", "missing", "shares", "bins", "draws", "effective", "place")  # of JSON and frames
_TAIL, _FINE = (
    1e-3,
    1e-8,
)  # of bins: probability that is left out on each side; tolerance, for nodes close to each other
Kind = Literal["mean", "mode", "median", "draw"]


@dataclass(frozen=True)
class CellOptions(CheckedOptions):
    """Options of both verbs."""

    particles: Particles = 256
    """Weighted draws of the other gaps of a row, where these come before known columns."""
    draws: Annotated[int, Range(1, 1 << 14)] = 16
    """Draws chosen among these, over whose exact distributions each prediction is a mean."""
    allow_missing: Switch = False
    """Let a cell be missing again, as in training; otherwise every prediction is of a value."""
    seed: Seed | None = None
    """The same seed gives the same draws; random by default."""


@dataclass(frozen=True)
class TablePrediction(CellOptions):
    """Predict any cells of a table from all other cells of their rows.

    For each empty cell, or each cell of the named columns: the value, an interval, the probability of the value, and
    whether it is exact or a mean over draws. The value is the mean of a number, the median of a date, and the most
    probable category. A model of the whole row answers every such question; it needs no training for one.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": "A table; columns that are left out are predicted too.",
        "json": (
            "Print one JSON object per cell, with the mean, median and mode, and the probability of each category "
            "or quantiles."
        ),
    }

    columns: Annotated[str, Parameter(name=["--columns", "--column"])] = ""
    """Columns to predict in every row, NAME,..., from those that are not named; by default every empty cell."""
    interval: Annotated[float, Range(0.01, 0.999)] = 0.8
    """Probability of the interval between low and high."""
    bins: Annotated[int, Range(0, 1024)] = 0
    """Number of bins for the density of each number, in JSON and Python; none by default."""


@dataclass(frozen=True)
class PredictedCell:
    """What the model says of one cell, as texts of cells where it names values."""

    row: "PartialRow"
    column: "ColumnSchema"
    mean: str
    median: str
    mode: str
    low: str
    high: str
    probability: float | None  # of the category `mode`
    missing: float  # probability that the cell is missing
    shares: dict[str, Any]  # of categories, the most probable first, or quantiles by level
    bins: dict[str, list[Any]] | None  # edges of intervals (low, high] of a number, and their probabilities
    draws: int
    effective: float

    @property
    def value(self) -> str:
        return self.chosen("mean")

    def chosen(self, kind: Kind) -> str:
        """Return the cell of a kind; empty where the cell is more likely missing."""
        if self.missing > 0.5:
            return ""
        if self.column.kind == "categorical":
            return self.mode
        if self.column.kind == "date" and kind == "mean":
            return self.median
        return {"mean": self.mean, "mode": self.mode, "median": self.median}[kind]

    @property
    def how(self) -> str:
        return "exact" if not self.draws else f"{counted(self.draws, 'draw')}, {self.effective:.0f} effective"


def predict_cells(run: "TableTask", data: list[str], options: TablePrediction, *, device: str) -> Result:
    names = columns_of(run.schema, options.columns)
    predictor = Predictor(run, options, device, options.interval, options.bins)
    columns = [
        Column("line"),
        Column("column"),
        *([Column("actual")] if names else []),
        Column("value"),
        Column("low"),
        Column("high"),
        Column("probability", 3),
        Column("how"),
        *(Column(name, shown=False) for name in _HIDDEN),
    ]
    rows = predictor.predict(data[0], names)
    about = {"seed": predictor.seed, "interval": options.interval}
    count = row_count(data[0]) if names else None
    hints = {"item": "place", "rows": None if count is None else count * len(names), "batchwise": True}
    return Result(columns, rows, notes=predictor.notes, main="value", about=about, hints=hints, figure=predicted_figure)


def _row(cell: PredictedCell, actual: Sequence[str | None]) -> list[Any]:
    parsed = cell.column.parsed
    low, high, mean, median, mode = map(parsed, (cell.low, cell.high, cell.mean, cell.median, cell.mode))
    given = [parsed(text or "") for text in actual]
    effective = cell.effective if cell.draws else None
    return [
        cell.row.line, cell.column.name, *given, parsed(cell.value), low, high, cell.probability, cell.how,
        mean, median, mode, cell.missing, cell.shares, cell.bins, cell.draws, effective,
        cell.row.place,
    ]  # fmt: skip


def columns_of(schema: "TableSchema", text: str) -> list[int]:
    """Parse the names of columns, separated by commas."""
    names = [column.name for column in schema.kept]
    try:
        asked = [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:
        raise OptionError("columns", f"expected NAME,... in one line, got {text!r:.60}") from None
    for name in asked:
        if name not in names:
            listed = shorten(", ".join(names), 100, placeholder=" …")
            raise OptionError("columns", f"expected NAME,... of {listed}, got {name!r:.60}")
    return [names.index(name) for name in dict.fromkeys(asked)]


class Predictor:
    """The model of a run, and what it says of the gaps of rows."""

    def __init__(self, run: "TableTask", options: CellOptions, device: str, interval: float, bins: int = 0):
        self.seed = randbelow(1 << 31) if options.seed is None else options.seed
        self._run, self._schema, self._options = run, run.schema, options
        self._model = run.model(device)
        self._interval, self._bins = interval, bins
        self._empty = empty_columns(self._schema)
        self._generator = torch.Generator(modes.device_of(self._model)).manual_seed(self.seed)
        self._total, self._evidence = Evidence(), Evidence()  # of all blocks, and of the block that is predicted

    def predict(self, file: str, names: Sequence[int]) -> Iterator[Sequence[Any]]:
        """Yield the rows of the predictions of the gaps of a file, or of some columns."""
        columns, rows = self._schema.partial(file)
        places = {column.name: place for place, column in enumerate(columns)}

        def answer(batch: "tuple[int, list[PartialRow]]") -> Answered:
            number, block = batch
            self._begin(number, columns, block)
            answers = list[Sequence[Any]]()
            for row, cells in zip(block, self._of_block(block, names), strict=True):
                answers += (_row(cell, [row.cells[places[cell.column.name]]] if names else []) for cell in cells)
            return answers, (asdict(self._evidence),)

        def add(counts: dict[str, Any]) -> None:
            self._total.add(Evidence(**counts))

        yield from self._run.answered(enumerate(in_blocks(rows, _ROWS)), answer, add)

    def filled(self, file: str, kind: Kind, filled: list[PredictedCell]) -> Iterator[list[str | None]]:
        """Yield the rows of a file with their gaps filled; adds the predictions to `filled`."""
        for block in self._blocks(file):
            for row, cells in zip(block, self._of_block(block, []), strict=True):
                filled += cells
                texts = {cell.column.name: cell.chosen(kind) for cell in cells}
                yield row.filled([texts.get(column.name) or None for column in self._schema.kept])

    def drawn(self, file: str, n: int) -> Iterator[list[str | None]]:
        """Yield the rows of a file n times each, with their gaps drawn together."""
        together = max(1, _TOGETHER // self._options.particles)
        for block in self._blocks(file):
            repeated = [row for row in block for _ in range(n)]
            found: dict[int, list[str | None]] = {}
            for known, places in _by_gaps(repeated).items():
                self._leave([index for index, is_known in enumerate(known) if not is_known], len(places))
                for part in in_blocks(iter(places), together):
                    same = [repeated[place] for place in part]
                    cells, effective = complete_block(
                        self._model, self._schema, same, self._options.particles, self._generator,
                        missing=self._options.allow_missing, other=False,
                    )  # fmt: skip
                    self._evidence.count(known.count(False), effective or [inf] * len(same))
                    found |= dict(zip(part, cells, strict=True))
            yield from (found[place] for place in range(len(repeated)))

    def notes(self) -> Iterator[str]:
        """Say how the cells were predicted, and what to do about uncertain ones."""
        return self._total.notes()

    def _blocks(self, file: str) -> "Iterator[list[PartialRow]]":
        """Yield the rows of a table with gaps in blocks, and add up what is noted of them."""
        columns, rows = self._schema.partial(file)
        for number, block in enumerate(in_blocks(rows, _ROWS)):
            self._begin(number, columns, block)
            yield block
            self._total.add(self._evidence)

    def _begin(self, number: int, columns: "Sequence[ColumnSchema]", block: "Sequence[PartialRow]") -> None:
        """Begin a block, whose draws do not depend on those of other blocks."""
        self._generator.manual_seed(block_seed(self.seed, number))
        self._evidence = Evidence()
        self._evidence.read(columns, block)

    def _of_block(self, block: "Sequence[PartialRow]", names: Sequence[int]) -> list[list[PredictedCell]]:
        found: list[list[PredictedCell]] = [[] for _ in block]
        for known, places in _by_gaps(block).items():
            asked = list(names) or [index for index, is_known in enumerate(known) if not is_known]
            self._leave(asked, len(places))
            targets = [index for index in asked if index not in self._empty]
            if targets:
                rows = self._of_rows([block[place] for place in places], known, targets)
                for place, cells in zip(places, rows, strict=True):
                    found[place] = cells
        return found

    def _leave(self, columns: Sequence[int], rows: int) -> None:
        """Count the cells of columns of which training had no value."""
        self._evidence.leave([self._schema.kept[index].name for index in self._empty.intersection(columns)], rows)

    def _of_rows(
        self, rows: "Sequence[PartialRow]", known: Sequence[bool], targets: Sequence[int]
    ) -> list[list[PredictedCell]]:
        """Predict some columns of rows that have gaps in the same columns."""
        from chainrule.decoding import conditional

        gaps = [not is_known or index in targets for index, is_known in enumerate(known)]
        options = self._options
        found = conditional(
            restricted(self._model, self._schema, gaps, missing=options.allow_missing, other=True),
            torch.tensor([row.numbers for row in rows], dtype=torch.float64),
            targets,
            ~torch.tensor([gaps] * len(rows)),
            particles=options.particles,
            draws=options.draws,
            tolerance=_FINE if self._bins else TOLERANCE,
            generator=self._generator,
        )
        for one in found:
            self._evidence.count(1, one.effective.tolist())
        columns = [self._schema.kept[index] for index in targets]
        cells = [
            predicted(column, one, rows, self._interval, self._bins) for column, one in zip(columns, found, strict=True)
        ]
        return [list(of_row) for of_row in zip(*cells, strict=True)]


def _by_gaps(block: "Sequence[PartialRow]") -> dict[tuple[bool, ...], list[int]]:
    """Group the places of rows by the columns that they know."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, row in enumerate(block):
        groups.setdefault(tuple(row.known), []).append(place)
    return groups


def row_count(file: Any) -> int | None:
    """Count the lines of a plain file where a progress bar shows them."""
    if isinstance(file, DataSource):
        return None
    path = Path(file)
    if not sys.stderr.isatty() or path.suffix.lower() not in (".csv", ".tsv", ".txt") or not path.is_file():
        return None
    with path.open("rb") as lines:
        return sum(part.count(b"\n") for part in iter(partial(lines.read, 1 << 20), b""))


def predicted(
    column: "ColumnSchema", found: "Conditional", rows: "Sequence[PartialRow]", interval: float, bins: int = 0
) -> Iterator[PredictedCell]:
    """Yield the prediction of a column in each row."""
    more = (found.draws, found.effective.tolist())
    if column.kind == "categorical":
        yield from _categories(column, found, rows, *more)
        return
    tail = (1 - interval) / 2
    numbers = [found.mean, found.mode, *(found.quantile(level) for level in (0.5, tail, 1 - tail, *_LEVELS))]
    listed = [part.tolist() for part in numbers]
    densities = _binned(column, found, bins) if bins else [None] * len(rows)
    for index, (row, missing) in enumerate(zip(rows, found.missing.tolist(), strict=True)):
        mean, mode, median, low, high, *levels = (number_cell(column, part[index]) for part in listed)
        shares = {f"{level:g}": column.parsed(cell) for level, cell in zip(_LEVELS, levels, strict=True)}
        effective = more[1][index]
        draws = 0 if effective == inf else found.draws
        yield PredictedCell(
            row, column, mean, median, mode, low, high, None, missing, shares, densities[index], draws, effective
        )


def _binned(column: "ColumnSchema", found: "Conditional", bins: int) -> list[dict[str, list[Any]]]:
    """Return edges of bins of each row, and the probability of (edge, next edge] in each; whole where numbers are."""
    low, high = found.quantile(_TAIL), found.quantile(1 - _TAIL)
    steps = torch.linspace(0, 1, bins + 1, dtype=low.dtype, device=low.device)
    if column.kind != "real":
        low = low - 1
    edges = low.unsqueeze(1) + (high - low).unsqueeze(1) * steps
    if column.kind != "real":
        edges = edges.round()
    binned = []
    for own, below in zip(edges.tolist(), found.cdf(edges).tolist(), strict=True):
        kept = dict(zip(own, below, strict=True))  # of whole numbers, fewer than asked for may be in reach
        texts, sums = (number_cell(column, edge) for edge in kept), list(kept.values())
        shares = [more - less for less, more in pairwise(sums)]
        binned.append({"edges": list(map(column.parsed, texts)), "probabilities": shares})
    return binned


def number_cell(column: "ColumnSchema", number: float) -> str:
    """Return a number as a cell of its column: whole where its numbers are."""
    return column.decode(float(round(number)) if column.kind != "real" else number) or ""


def _categories(
    column: "ColumnSchema", found: "Conditional", rows: "Sequence[PartialRow]", draws: int, effective: list[float]
) -> Iterator[PredictedCell]:
    names = column.categories
    shares = category_shares(found, len(names))
    missing = shares[:, names.index(None)].tolist() if None in names else [0.0] * len(rows)
    named = shares.clone()
    for index, name in enumerate(names):
        if name in (None, "<other>"):
            named[:, index] = -1  # a gap is filled with a category that there is
    best = named.argmax(1).tolist()
    for index, (row, own_shares) in enumerate(zip(rows, shares.tolist(), strict=True)):
        mode = names[best[index]] or ""
        order = sorted(enumerate(own_shares), key=lambda entry: -entry[1])
        listed = {names[code] or "": share for code, share in order if names[code] or share > 0}
        own = 0 if effective[index] == inf else draws
        share = own_shares[best[index]]
        yield PredictedCell(
            row, column, mode, mode, mode, "", "", share, missing[index], listed, None, own, effective[index]
        )  # fmt: skip


def category_shares(found: "Conditional", categories: int) -> "Tensor":
    """Return the probability of each category, (B, K)."""
    shares = torch.zeros(len(found.values), categories, dtype=found.weights.dtype, device=found.weights.device)
    return shares.scatter_add_(1, found.values.long(), found.weights).cpu()
