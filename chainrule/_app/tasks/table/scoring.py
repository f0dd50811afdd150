"""Rows of a table read by a trained model: how surprising they are, and which of their cells; and their codes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Column, Result
from chainrule._app.tasks.codes import MOST_SAMPLES, BoundMeter, refuse_samples
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.ledger import Tally
from chainrule._blocks import in_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.table.task import TableTask
    from chainrule.models import TableMADE

BLOCK = 1024  # rows computed together
_TYPICAL = 4096  # held-out rows that tell how surprising a column usually is
_NOTABLE = 0.01  # nats over the mean of its column: a cell of less is no surprise, as that of a constant column


@dataclass(frozen=True)
class TableScoring(CheckedOptions):
    """Score a table: nats of each row, exact under the model, and the cell that surprised most.

    The cell named is the one whose nats exceed the mean of its column by most, or where none does, the one of most
    nats. For a variational autoencoder the nats are an upper bound, shown with the standard error of the draws, and
    with the ELBO; no cell is named.

    Args:
        data: The table.
        json: Print one JSON object a row.
        top: Print only this many rows, the most surprising ones.
    """

    samples: int | None = within(None, 1, MOST_SAMPLES)
    """K, codes drawn for the bound of a variational autoencoder, twice; 100 if not given. More bring it nearer."""


def score_table(run: "TableTask", file: str, options: TableScoring, *, device: str) -> Result:
    """Score the rows of a file."""
    empty = f"{file}: expected at least one row to score, got none"
    if run.has_code:
        return _by_bounds(run, file, options, device, empty)
    refuse_samples(options.samples, run.config.model)
    total = Tally()
    columns = [
        Column("line"),
        Column("nats", 3),
        Column("most", heading="most surprising cell"),
        Column("cell"),
        Column("cell_nats", 2, heading="its nats"),
        Column("unseen"),
        Column("columns", shown=False),
        Column("row", shown=False),
    ]
    return total.result(columns, _scored(run, file, device, total), basis=run.basis, unit="row", empty=empty)


def _by_bounds(run: "TableTask", file: str, options: TableScoring, device: str, empty: str) -> Result:
    total = BoundMeter(run.code_model(device, "score"), options.samples)

    def rows() -> Iterator[Sequence[Any]]:
        for lines, x in blocks(run, file):
            for line, measured in zip(lines, total.measure(x), strict=True):
                yield (line, *measured)

    columns = [Column("line"), *BoundMeter.COLUMNS]
    basis = replace(run.basis, samples=total.samples)
    return total.result(columns, rows(), basis=basis, unit="row", empty=empty, rank="nats_at_most")


def blocks(run: "TableTask", file: str) -> "Iterator[tuple[list[int], Tensor]]":
    """Lines and rows (B, D) of a file."""
    import torch

    for block in in_blocks(run.schema.encoded(file), BLOCK):
        yield ([line for line, _, _ in block], torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64))


def nats_of(model: "TableMADE", rows: "Tensor") -> "Tensor":
    """(B, D), of each value given those visited before it."""
    from chainrule._modes import device_of

    rows = rows.to(device_of(model))
    return -model(rows).log_prob(rows).detach().cpu().double()


def usual_nats(run: "TableTask", model: "TableMADE") -> "Tensor":
    """(D,), the mean of each column over held-out rows."""
    import torch

    held_out = torch.from_numpy(run.table().valid[:_TYPICAL].copy())
    return torch.stack([nats_of(model, rows).sum(0) for rows in held_out.split(BLOCK)]).sum(0) / len(held_out)


def _scored(run: "TableTask", file: str, device: str, total: Tally) -> Iterator[Sequence[Any]]:
    import torch

    model, columns = run.model(device), run.schema.kept
    names = [column.name for column in columns]
    usual = usual_nats(run, model)
    for block in in_blocks(run.schema.encoded(file), BLOCK):
        nats = nats_of(model, torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64))
        excess = nats - usual
        most = torch.where(excess.amax(1) > _NOTABLE, excess.argmax(1), nats.argmax(1)).tolist()
        for (line, cells, _), row, place in zip(block, nats.tolist(), most, strict=True):
            total.add(sum(row), len(row))
            values = [column.parsed(cell) for column, cell in zip(columns, cells, strict=True)]
            unseen = [column.name for column, cell in zip(columns, cells, strict=True) if not column.seen(cell)]
            by_column = dict(zip(names, row, strict=True))
            yield (
                line, sum(row), names[place], values[place], row[place], ", ".join(unseen), by_column,
                dict(zip(names, values, strict=True)),
            )  # fmt: skip


@dataclass(frozen=True)
class TableEmbedding:
    """Embed the rows of a table: for each its line, and the mean of its code.

    Args:
        data: The table.
    """


def embed_rows(run: "TableTask", file: str, options: TableEmbedding, *, device: str) -> Result:
    """The code of each row."""
    import torch

    from chainrule._modes import device_of

    model = run.code_model(device, "embed")
    place = device_of(model)

    def rows() -> Iterator[Sequence[Any]]:
        for lines, x in blocks(run, file):
            with torch.no_grad():
                codes = model.codes(x.to(place)).float().cpu().numpy()
            yield from zip(map(str, lines), codes, strict=True)

    return Result([Column("input"), Column("code", heading="z")], rows(), main="code", form="csv")
