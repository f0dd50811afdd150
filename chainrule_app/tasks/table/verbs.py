"""Draw, score and embed the rows of a table with a trained model."""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from chainrule.option_error import OptionError, option, raw_text
from chainrule_app.batchwise import Answered, block_seed
from chainrule_app.heavy import modes, np, torch
from chainrule_app.printing import listed, spelled
from chainrule_app.readers import tables as table_reader
from chainrule_app.results import Column, Result
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.copies import Copies
from chainrule_app.tasks.options import Particles
from chainrule_app.tasks.table.cells import score_cells, training_notes
from chainrule_app.tasks.table.gaps import complete_block, is_seen
from chainrule_app.tasks.table.prediction import row_count
from chainrule_app.tasks.tally import Tally

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.readers.tables.columns import Block, CellColumn
    from chainrule_app.readers.tables.partial_row import PartialRow
    from chainrule_app.readers.tables.prepare import Rows
    from chainrule_app.tasks.table.task import TableTask

_BLOCK = 1024  # rows drawn together
_TOGETHER = 1 << 14  # particles
_AGAIN = 20  # times that a row with a number outside the range of its column is drawn again


@dataclass(frozen=True)
class TableSampling(CheckedOptions):
    """Draw rows of a table from a trained model; `chainrule fill` completes rows that have gaps."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "n": "Number of rows.",
        "out": "A CSV file (.csv.gz compresses it) or a Parquet file; standard output by default.",
    }

    where: str = ""
    """Values that every row must have, COLUMN=VALUE,...; quote one with a comma: '"name=a, b",size=3'."""
    particles: Particles = 256
    """Draws from which each row is chosen with --where, if given columns come after others."""


def sample_rows(run: "TableTask", n: int, options: TableSampling, *, seed: int, device: str) -> Result:
    if options.where:
        return _conditioned(run, n, options, seed, device)
    return _rows_result(run, partial(_drawn, run, n, seed, device), {"seed": seed})


def _rows_result(
    run: "TableTask",
    rows: Callable[[Callable[..., None]], Iterator[Sequence[Any]]],
    about: dict[str, Any],
    notices: Sequence[str] = (),
) -> Result:
    """Build the result of drawing whole rows; `rows` gets a function that takes the drawn rows."""
    columns = [Column(column.name, parse=column.parsed) for column in run.schema.kept]
    copies = Copies("row", partial(_in_training, run))

    def add(drawn: Sequence[Sequence[str | None]]) -> None:
        for row in drawn:
            copies.add(tuple(row))

    return Result(
        columns,
        rows(add),
        about=about,
        summary=copies.figures,
        notes=lambda: notices,
        form="csv" if run.schema.header else "cells",
        framed=True,
        hints={"batchwise": True},
    )


_MOST_CELLS = 1 << 23  # of a training table that is searched


def _in_training(run: "TableTask", rows: set[tuple[str | None, ...]]) -> set[tuple[str | None, ...]]:
    """Return the rows, as cells, that equal a row of the training table; a rare value equals none."""
    columns, training = run.schema.kept, run.table().train
    if training.size > _MOST_CELLS:
        raise ValueError("a long table")
    encoded = {
        _key([column.encode(cell) for column, cell in zip(columns, row, strict=True)]): row
        for row in rows
        if all(column.seen(cell) and cell != table_reader.OTHER for column, cell in zip(columns, row, strict=True))
    }
    return {encoded[key] for key in map(_key, training) if key in encoded}


def _key(numbers: "Sequence[float] | npt.NDArray[np.float64]") -> bytes:
    """Return equal bytes for equal rows of numbers: one for both zeros, and one for all that is missing."""
    return (np.nan_to_num(np.asarray(numbers, np.float64), nan=np.inf) + 0.0).tobytes()


def _conditioned(run: "TableTask", n: int, options: TableSampling, seed: int, device: str) -> Result:
    """Draw rows with given values: exact if these columns come first in the model's order, else resampled."""
    row = _known_row(run, options.where)
    places = run.model(device).to_sequence(torch.tensor([row.known]))[0]
    exact = bool((places == places.cummin(0).values).all())
    way = "exact" if exact else f"sampling-importance, each row one of {options.particles} draws"
    rows = partial(_completed, run, row, n, options.particles, seed, device)
    return _rows_result(run, rows, {"seed": seed, "conditioning": way}, list(_outside(run, row)))


def _outside(run: "TableTask", row: "PartialRow") -> Iterator[str]:
    """Say which known numbers lie outside the range of training: the model extrapolates there."""
    for column, cell, number in zip(run.schema.kept, row.cells, row.numbers, strict=True):
        if cell is not None and column.bounds is not None and not column.bounds[0] <= number <= column.bounds[1]:
            low, high = map(column.decode, column.bounds)
            yield f"{spelled('where')}: {column.name}={cell} lies outside the range of training, {low} to {high}"


def _known_row(run: "TableTask", where: str) -> "PartialRow":
    """Parse the cells that `--where` names."""
    from chainrule_app.readers.tables.partial_row import PartialRow

    try:
        pairs = [pair.partition("=") for pair in next(csv.reader([where]))]
    except csv.Error:
        raise OptionError("where", f"expected COLUMN=VALUE,... in one line, got {where!r:.60}") from None
    values = {name.strip(): value for name, _, value in pairs}
    names = [column.name for column in run.schema.kept]
    for name, equals, _ in pairs:
        if not equals or name.strip() not in names:
            raise OptionError("where", f"expected COLUMN=VALUE,... of {listed(names, 100)}, got {name!r:.60}")
    if len(values) < len(pairs):
        raise OptionError("where", f"expected each column once, got {where!r:.100}")
    try:
        for column in run.schema.kept:
            if column.dates is not None and values.get(column.name):
                date = column.encode(column.dates.rewritten(values[column.name]))
                values[column.name] = column.dates.text(int(date))
        for column in run.schema.kept:
            if column.name in values:
                _check_seen(column, values[column.name])
        numbers = [column.encode(values[column.name]) if column.name in values else 0.0 for column in run.schema.kept]
    except ValueError as error:
        raise OptionError("where", raw_text(error)) from None
    known = [name in values for name in names]
    return PartialRow([values.get(name) for name in names], [not own for own in known], numbers, known)


def _check_seen(column: "ColumnSchema", value: str) -> None:
    """Refuse a category that the model takes for any rare one."""
    if is_seen(column, value):
        return
    names = [name for name in column.categories if name not in (None, "", table_reader.OTHER)]
    cased = {name.casefold(): name for name in reversed(names)}
    near = [cased[name] for name in get_close_matches(value.casefold().strip(), cased, 3)]
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"expected one of {listed(names, 80)}"
    has_rare = table_reader.OTHER in column.categories and not column.unseen
    how, rare = ("rare or ", f"; {column.name}={table_reader.OTHER} is any rare value") if has_rare else ("", "")
    raise ValueError(f"column {column.name!r}: {value!r:.40} is {how}not in the training data: {hint}{rare}")


def _drawn(run: "TableTask", n: int, seed: int, device: str, add: Callable[..., None]) -> Iterator[Sequence[Any]]:
    model = run.model(device)
    model.exclude(run.schema.unseen())
    generator = torch.Generator(modes.device_of(model))

    def answer(start: int) -> Answered:
        generator.manual_seed(block_seed(seed, start // _BLOCK))
        drawn = model.sample(min(_BLOCK, n - start), generator=generator)
        for _ in range(_AGAIN):  # else what lies outside would all be moved to the lowest or the highest number
            outside = torch.from_numpy(run.schema.outside(drawn.cpu().numpy())).to(drawn.device)
            if not outside.any():
                break
            drawn[outside] = model.sample(int(outside.sum()), generator=generator)
        rows: list[Sequence[Any]] = list(run.schema.decode(drawn.cpu().numpy()))
        return rows, (rows,)

    yield from run.answered(range(0, n, _BLOCK), answer, add)


def _completed(
    run: "TableTask",
    row: "PartialRow",
    n: int,
    particles: int,
    seed: int,
    device: str,
    add: Callable[..., None],
) -> Iterator[Sequence[Any]]:
    model, size = run.model(device), max(1, _TOGETHER // particles)
    generator = torch.Generator(modes.device_of(model))
    uncertain = 0

    def answer(start: int) -> Answered:
        generator.manual_seed(block_seed(seed, start // size))
        block = [row] * min(size, n - start)
        cells, effective = complete_block(model, run.schema, block, particles, generator, missing=True, other=True)
        return list(cells), (cells, sum(number < 2 for number in effective or ()))

    def counted(cells: Sequence[Any], few: int) -> None:
        nonlocal uncertain
        uncertain += few
        add(cells)

    yield from run.answered(range(0, n, size), answer, counted)
    if uncertain:
        print(
            f"{uncertain} rows rest on a single draw of {particles}: the given values are improbable; "
            f"more {spelled('particles')} may help",
            file=sys.stderr,
        )


_LEAST_ROWS, _MOST_ROWS = 1024, 2048  # computed together: outputs of more leave the second-level cache
_CELLS = 1 << 16  # in the rows computed together, where that is between both
_TYPICAL = 4096  # held-out rows that tell the mean nats of a column
_NOTABLE = 0.01  # nats above the column's mean below which a cell is no surprise, such as in a constant column


@dataclass(frozen=True)
class TableScoring(CheckedOptions):
    """Score a table: nats of each row, exact under the model, and its most surprising cell; or of each cell.

    The most surprising cell exceeds the mean nats of its column by most; if none exceeds it, the cell has the most
    nats. With --per cell, each cell has a row, and --sort ranks them by their excess over the median nats of their
    column, categories that training lacked first. A variational autoencoder gives an upper bound of the nats, with the
    standard error of the draws, and the ELBO, without a cell.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "The table.",
    }

    per: Literal["row", "cell"] = "row"
    """Print a row for each row of the table, or for each cell."""
    given: Literal["previous", "all"] = "previous"
    """With --per cell, the surprise of a cell given the previous columns, whose sum is that of the row; or given all
    other cells, with the value that would be expected there and an interval of 80%."""


def score_table(run: "TableTask", file: str, options: TableScoring, *, device: str) -> Result:
    empty = f"{file}: expected at least one row to score, got none"
    if options.given == "all" and options.per == "row":
        raise OptionError("given", f"all requires {option('per', 'cell')}")
    if options.per == "cell":
        return score_cells(run, file, given_all=options.given == "all", device=device, empty=empty)
    total, own = Tally(), run.schema.kept
    columns = [
        Column("line"),
        Column("nats", 3),
        Column("most", heading="most surprising cell"),
        Column("cell"),
        Column("cell_nats", 2, heading="its nats"),
        Column("unseen"),
        Column("columns", shown=False, parse=partial(_nats_by_name, own)),
        Column("row", shown=False, parse=partial(_parsed_row, own)),
    ]
    rows = _scored(run, file, device, total)
    notes, hints = partial(training_notes, run, file), {"rows": row_count(file), "batchwise": True}
    return total.result(columns, rows, basis=run.basis, unit="row", empty=empty, notes=notes, hints=hints)


def divided_scores(run: "TableTask", scores: Result, sizes: Sequence[int]) -> Iterator[Result]:
    """Yield the scores of the first rows, of the rows after them, and so on, each as if it were scored alone."""
    rows, nats = scores.rows(), scores.names.index("nats")
    for size in sizes:
        own, total = [(index, *row[1:]) for index, row in enumerate(islice(rows, size))], Tally()
        whole = torch.tensor([row[nats] for row in own], dtype=torch.float64).sum()
        total.add(float(whole), size * len(run.schema.kept), size)
        yield scores.with_rows(own, partial(total.figures, "row", run.basis))


def _by_name(columns: "Sequence[ColumnSchema]", values: Sequence[Any]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(columns, values, strict=True)}


@dataclass
class _Details:
    """Nats and texts of all cells of some rows, made for each row only where they are asked for."""

    nats: "npt.NDArray[np.float64]"  # (B, D)
    columns: "Sequence[CellColumn] | None"  # (D), until the texts are known

    @cached_property
    def texts(self) -> list[tuple[str | None, ...]]:
        columns, self.columns = self.columns or (), None
        return list(zip(*(column.texts() for column in columns), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {"nats": self.nats, "columns": None, "texts": self.texts}


def _nats_by_name(columns: "Sequence[ColumnSchema]", place: tuple[_Details, int]) -> dict[str, float]:
    return _by_name(columns, place[0].nats[place[1]].tolist())


def _parsed_row(columns: "Sequence[ColumnSchema]", place: tuple[_Details, int]) -> dict[str, Any]:
    cells = place[0].texts[place[1]]
    return _by_name(columns, [column.parsed(cell) for column, cell in zip(columns, cells, strict=True)])


def _rows_together(run: "TableTask") -> int:
    """Return how many rows to compute together: fewer of a wide table, whose rows need more memory."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _CELLS // len(run.schema.kept)))


def nats_of(model: "TableMADE | TableEnsemble | TableNeighbours", rows: "Tensor") -> "Tensor":
    """Return the nats (B, D) of each value given the previous ones."""
    rows = rows.to(modes.device_of(model))
    with torch.no_grad():
        return -model(rows).log_prob(rows).cpu().double()


def mean_nats(run: "TableTask", model: "TableMADE | TableEnsemble | TableNeighbours") -> "Tensor":
    """Return the mean nats (D,) of each column over held-out rows; over drawn ones where an export left them out.

    They are computed once for the model of a run that several calls share.
    """
    if "mean_nats" not in run.computed:
        if run.is_prepared():
            typical = torch.from_numpy(run.table().valid[:_TYPICAL].copy())
        else:
            typical = model.sample(_TYPICAL, generator=torch.Generator(modes.device_of(model)).manual_seed(0))
        nats = [nats_of(model, rows).sum(0) for rows in typical.split(_rows_together(run))]
        run.computed["mean_nats"] = torch.stack(nats).sum(0) / len(typical)
    means: Tensor = run.computed["mean_nats"]
    return means


def _scored(run: "TableTask", file: str, device: str, total: Tally) -> Iterator[Sequence[Any]]:
    model, columns = run.fixed_model(device), run.schema.kept
    means = mean_nats(run, model)

    def answer(encode: "Callable[[], tuple[Block, Rows]]") -> Answered:
        block, rows = encode()
        nats = nats_of(model, torch.from_numpy(rows))
        excess = nats - means
        most = torch.where(excess.amax(1) > _NOTABLE, excess.argmax(1), nats.argmax(1))
        sums, greatest = nats.sum(1), nats.gather(1, most.unsqueeze(1)).squeeze(1)
        names, cells, unseen = _cells_of(columns, block, rows, most.numpy())
        places = list(zip(repeat(_Details(nats.numpy(), block.columns), len(nats)), range(len(nats)), strict=True))
        parts = (sums.tolist(), names, cells, greatest.tolist(), unseen, places, places)
        return list(zip(block.lines.tolist(), *parts, strict=True)), (float(sums.sum()), nats.numel(), len(nats))

    with closing(run.schema.encoders(file, _rows_together(run))) as batches:
        yield from run.answered(batches, answer, total.add)


def _cells_of(
    columns: "Sequence[ColumnSchema]", block: "Block", rows: "Rows", chosen: "npt.NDArray[np.int64]"
) -> tuple[list[str], list[Any], list[str]]:
    """Return the name and the value of the chosen cell of each row, and the names of its columns with unseen cells."""
    names, unseen = [""] * len(block), [""] * len(block)
    cells: list[Any] = [None] * len(block)
    for index, (column, own) in enumerate(zip(columns, block.columns, strict=True)):
        here = chosen == index
        places = np.flatnonzero(here).tolist()
        if places:
            values = column.values(own.part(here), rows[here, index])
            for place, value in zip(places, values, strict=True):
                names[place], cells[place] = column.name, value
        for place in np.flatnonzero(column.unseen_cells(own, rows[:, index])).tolist():
            unseen[place] += f", {column.name}" if unseen[place] else column.name
    return names, cells, unseen
