"""Score the cells of a table: how surprising each is given the earlier columns, or all other cells of its row."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from chainrule_app.batchwise import Answered
from chainrule_app.blocks import in_blocks
from chainrule_app.heavy import modes, torch
from chainrule_app.pages.result_figures import cells_figure
from chainrule_app.results import Column, Result
from chainrule_app.tasks.table.prediction import TOLERANCE, category_shares, number_cell, row_count
from chainrule_app.tasks.tally import Tally
from chainrule_app.tasks.training_data import NOTE, is_training_file

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.decoding import Conditional
    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.tasks.table.task import TableTask

_BLOCK = 256  # rows computed together
_TYPICAL = 256  # held-out rows that tell the median nats of a column
_FIRST = 1e6  # above any excess: a category that training lacked comes first


def score_cells(run: "TableTask", file: str, *, given_all: bool, device: str, empty: str) -> Result:
    total = Tally()
    columns = [
        Column("line"),
        Column("column"),
        Column("cell"),
        Column("nats", 2),
        Column("excess", 2),
        *([Column("expected")] if given_all else []),
        Column("unseen"),
        *(Column(name, shown=False) for name in (["value", "low", "high"] if given_all else [])),
        Column("rank", shown=False),
    ]
    basis = replace(run.basis, given="all other cells of the row") if given_all else run.basis
    rows = _cells(run, file, given_all, device, total)
    count = row_count(file)
    hints = {"rows": None if count is None else count * len(run.schema.kept), "batchwise": True}
    notes = partial(training_notes, run, file)
    return total.result(
        columns, rows, basis=basis, unit="cell", empty=empty, rank="rank", hints=hints, notes=notes, figure=cells_figure
    )


def training_notes(run: "TableTask", file: str) -> Iterator[str]:
    """Say if the file is the one that the run was trained on."""
    if is_training_file(file, run.facts.source):
        yield NOTE.format(kind="table")


def _cells(run: "TableTask", file: str, given_all: bool, device: str, total: Tally) -> Iterator[Sequence[Any]]:
    model, columns = run.fixed_model(device), run.schema.kept
    name = f"median_nats given {'all' if given_all else 'previous'}"
    if name not in run.computed:
        run.computed[name] = _measured(model, _typical_rows(run, model), given_all)[0].median(0).values.tolist()
    typical = run.computed[name]

    def answer(block: Sequence[tuple[int, list[str | None], list[float]]]) -> Answered:
        rows = list[Sequence[Any]]()
        x = torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64)
        nats, found = _measured(model, x, given_all)
        expected = [list(_expected(column, one)) for column, one in zip(columns, found, strict=True)] if found else []
        for row, (line, cells, _) in enumerate(block):
            for index, (column, cell, own) in enumerate(zip(columns, cells, nats[row].tolist(), strict=True)):
                excess, unseen = own - typical[index], not column.seen(cell)
                said = [expected[index][row][0]] if found else []
                hidden = expected[index][row][1:] if found else ()
                rows.append((
                    line, column.name, column.parsed(cell), own, excess, *said, "yes" if unseen else "", *hidden,
                    excess + _FIRST * unseen,
                ))  # fmt: skip
        return rows, (float(nats.sum()), len(rows), len(rows))

    yield from run.answered(in_blocks(run.schema.encoded(file), _BLOCK), answer, total.add)


def _typical_rows(run: "TableTask", model: "TableMADE | TableEnsemble | TableNeighbours") -> "Tensor":
    """Return held-out rows, or drawn ones where an export left them out."""
    if run.is_prepared():
        return torch.from_numpy(run.table().valid[:_TYPICAL].copy())
    return model.sample(_TYPICAL, generator=torch.Generator(modes.device_of(model)).manual_seed(0))


def _measured(
    model: "TableMADE | TableEnsemble | TableNeighbours", x: "Tensor", given_all: bool
) -> "tuple[Tensor, list[Conditional]]":
    """Return the nats (B, D) of each cell, and the distributions given all other cells where these are asked for."""
    from chainrule.decoding import conditional

    x = x.to(modes.device_of(model))
    with torch.no_grad():
        logs = model(x).log_prob(x).double()
    if not given_all:
        return -logs.cpu(), []
    found = conditional(model, x, range(x.shape[1]), tolerance=TOLERANCE)
    evidence = torch.stack([one.log_evidence for one in found], 1)
    return (evidence - logs.sum(1, keepdim=True)).cpu(), found


def _expected(column: "ColumnSchema", found: "Conditional") -> Iterator[tuple[Any, ...]]:
    """Yield what is expected of a column in each row: in words, and the value with the ends of 80%."""
    if column.kind == "categorical":
        shares = category_shares(found, len(column.categories))
        best = shares.max(1)
        for share, code in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            name = column.categories[code]
            yield f"{name or 'missing'} {share:.0%}", name or None, None, None
        return
    ends = [found.quantile(level).tolist() for level in (0.5, 0.1, 0.9)]
    for numbers, missing in zip(zip(*ends, strict=True), found.missing.tolist(), strict=True):
        value, low, high = (number_cell(column, number) for number in numbers)
        words = f"missing {missing:.0%}" if missing > 0.5 else f"{value}, {low} to {high}"
        yield words, column.parsed(value), column.parsed(low), column.parsed(high)
