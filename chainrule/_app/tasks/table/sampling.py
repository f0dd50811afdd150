"""Rows drawn from a trained model of a table, or filled in where cells are missing."""

import csv
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._blocks import in_blocks

if TYPE_CHECKING:
    from torch import Generator

    from chainrule._app.tasks.table.task import TableTask
    from chainrule.data._tables.schema import PartialRow, TableSchema
    from chainrule.models import TableMADE

_BLOCK = 1024  # rows drawn together
_TOGETHER = 1 << 14  # particles
_AGAIN = 20  # times that a row with a number outside the range of its column is drawn again


@dataclass(frozen=True)
class TableSampling(CheckedOptions):
    """Draw rows of a table from a trained model, or fill in what is missing in some.

    A missing cell that the model expects to be missing may stay empty.

    Args:
        n: How many rows; with --complete, how many completions of each.
        out: A CSV file (.csv.gz compresses it) or a Parquet file; standard output if not given.
        json: Print one JSON object a row.
    """

    complete: Path | None = None
    """A table whose empty cells, and columns that it does not have, are drawn given the others. Known cells come back
    as they are."""
    where: str = ""
    """Values that every row must have, COLUMN=VALUE,...; quote one with a comma: '"name=a, b",size=3'."""
    particles: int = within(256, 1, 1 << 18)
    """How many draws each completion is chosen from, where known columns come after unknown ones."""


def sample_rows(run: "TableTask", n: int, options: TableSampling, *, seed: int, device: str) -> Result:
    """Draw n rows, or n completions of each row of a file."""
    if run.has_code and (options.complete is not None or options.where):
        raise ValueError("--complete, --where: a vae draws whole rows from a code: train a made to fill in others")
    if options.where:
        if options.complete is not None:
            raise ValueError("--where and --complete: both give known cells: leave one out")
        return _conditioned(run, n, options, seed, device)
    if options.complete is None:
        columns, rows = run.schema.kept, _drawn(run, n, seed, device)
    else:
        columns, partial = run.schema.partial(options.complete)
        rows = _completed(run, partial, n, options.particles, seed, device)
    named = [Column(column.name, parse=column.parsed) for column in columns]
    return Result(named, rows, about={"seed": seed}, form="csv" if run.schema.header else "cells", framed=True)


def _conditioned(run: "TableTask", n: int, options: TableSampling, seed: int, device: str) -> Result:
    """Rows with given values: exact where these columns come first in the model's order, else chosen from draws."""
    import torch

    row = _known_row(run, options.where)
    places = run.model(device).to_sequence(torch.tensor([row.known]))[0]
    exact = bool((places == places.cummin(0).values).all())
    way = "exact" if exact else f"sampling-importance, each row one of {options.particles} draws"
    rows = _completed(run, iter([row]), n, options.particles, seed, device)
    columns = [Column(column.name, parse=column.parsed) for column in run.schema.kept]
    about = {"seed": seed, "conditioning": way}
    return Result(columns, rows, about=about, form="csv" if run.schema.header else "cells", framed=True)


def _known_row(run: "TableTask", where: str) -> "PartialRow":
    """A row with the cells that `--where` gives."""
    from chainrule.data._tables.schema import PartialRow

    pairs = [pair.partition("=") for pair in next(csv.reader([where]))]
    given = {name.strip(): value for name, _, value in pairs}
    names = [column.name for column in run.schema.kept]
    for name, equals, _ in pairs:
        if not equals or name.strip() not in names:
            raise ValueError(f"--where: expected COLUMN=VALUE,... of {', '.join(names):.100}, got {name!r:.60}")
    try:
        numbers = [column.encode(given[column.name]) if column.name in given else 0.0 for column in run.schema.kept]
    except ValueError as error:
        raise ValueError(f"--where: {error}") from None
    return PartialRow([given.get(name) for name in names], numbers, [name in given for name in names])


def _drawn(run: "TableTask", n: int, seed: int, device: str) -> Iterator[list[str]]:
    import torch

    from chainrule._modes import device_of

    model = run.model(device)
    model.exclude(run.schema.unseen())
    generator = torch.Generator(device_of(model)).manual_seed(seed)
    for start in range(0, n, _BLOCK):
        drawn = model.sample(min(_BLOCK, n - start), generator=generator)
        for _ in range(_AGAIN):  # else what lies outside would all be moved to the lowest or the highest number
            outside = torch.from_numpy(run.schema.outside(drawn.cpu().numpy())).to(drawn.device)
            if not outside.any():
                break
            drawn[outside] = model.sample(int(outside.sum()), generator=generator)
        yield from run.schema.decode(drawn.cpu().numpy())


def _completed(
    run: "TableTask", partial: "Iterator[PartialRow]", n: int, particles: int, seed: int, device: str
) -> Iterator[list[str]]:
    import torch

    from chainrule._modes import device_of

    model = run.model(device)
    generator = torch.Generator(device_of(model)).manual_seed(seed)
    uncertain = 0
    repeated = (row for row in partial for _ in range(n))
    for block in in_blocks(repeated, max(1, _TOGETHER // particles)):
        cells, effective = complete_block(model, run.schema, block, particles, generator)
        uncertain += sum(number < 2 for number in effective or ())
        yield from cells
    if uncertain:
        print(
            f"{uncertain} completions rest on a single draw of {particles}: what is known in them is improbable; "
            "more --particles may help",
            file=sys.stderr,
        )


def complete_block(
    trained: "TableMADE", schema: "TableSchema", block: "Sequence[PartialRow]", particles: int, generator: "Generator"
) -> tuple[list[list[str]], list[float] | None]:
    """Draw the missing cells of rows, side by side."""
    import torch

    from chainrule.decoding import complete

    unseen = schema.unseen()
    rows = torch.tensor([row.numbers for row in block], dtype=torch.float64)
    known = torch.tensor([row.known for row in block])
    # What training had none of is not drawn, but may be known of a row.
    given = trained.layout.symbols(rows) == torch.tensor([-1 if symbol is None else symbol for symbol in unseen])
    model = deepcopy(trained)
    model.exclude([None if there else symbol for symbol, there in zip(unseen, (given & known).any(0), strict=True)])
    x, places = model.to_sequence(rows), model.to_sequence(known)
    exact = bool((places == places.cummin(1).values).all())  # everything known comes first
    found = complete(model, x, places, particles=1 if exact else particles, generator=generator)
    drawn = schema.decode(model.from_sequence(found.x).cpu().numpy())
    cells = [row.filled(own) for row, own in zip(block, drawn, strict=True)]
    return cells, None if exact else found.effective_particles.tolist()
