"""`chainrule score` on a run on a table."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data.tables import ColumnSchema
    from chainrule.models.table_made import TableMADE
    from chainrule.runs.table import TableRun

_BLOCK = 1024  # rows scored together
_TYPICAL = 4096  # held-out rows by which it is judged how surprising a column usually is


def score(
    run: Path,
    file: str,
    /,
    *,
    sort: Annotated[bool, Parameter(negative=())] = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Score a table: nats of each row, exact under the model, and the cell that surprised most.

    A cell is named by how far it is beyond what is usual in its column.

    Args:
        run: The run directory.
        file: The table.
        sort: Most surprising first.
        top: Only so many rows, the most surprising ones.
        json: Print one JSON object a row.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.runs.table import TableRun

    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    opened = TableRun.open(run)
    schema, count, total = opened.schema.kept, 0, 0.0

    def counted(rows: Iterator[ScoredRow]) -> Iterator[ScoredRow]:
        nonlocal count, total
        for row in rows:
            count, total = count + 1, total + row.nats
            yield row

    rows = counted(_scored(opened, file, device))
    if top is not None:
        rows = iter(heapq.nlargest(top, rows, key=lambda row: row.nats))
    elif sort:
        rows = iter(sorted(rows, key=lambda row: -row.nats))
    if not json:
        print(f"{'line':>8} {'nats':>10}  most surprising cell, and its nats")
    for row in rows:
        if json:
            print(dump_json(row.record(schema)))
        else:
            cell = f"{schema[row.most].name}={row.cells[row.most]}"
            cell = cell if cell.isprintable() else repr(cell)[1:-1]
            print(f"{row.line:>8} {row.nats:>10.3f}  {cell} ({row.columns[row.most]:.2f})")
    if not count:
        raise ValueError(f"{file}: expected at least one row to score, got none")
    if not json:
        print(f"{count:,} rows, {total / count:.4f} nats per row")


@dataclass
class ScoredRow:
    """The surprise of a row."""

    line: int
    cells: list[str]
    nats: float
    columns: list[float]
    most: int  # the column that is the most nats above what is usual for it
    unseen: int

    def record(self, schema: "list[ColumnSchema]") -> dict[str, Any]:
        """As JSON takes it."""
        names = [column.name for column in schema]
        return {
            "line": self.line,
            "nats": self.nats,
            "most": names[self.most],
            "columns": dict(zip(names, self.columns, strict=True)),
            "unseen": self.unseen,
            "row": dict(zip(names, self.cells, strict=True)),
        }


def _scored(run: "TableRun", file: str, device: str) -> Iterator[ScoredRow]:
    import torch

    from chainrule.training.parallel import choose_device

    model = run.model(choose_device(device))
    held_out = torch.from_numpy(run.table().valid[:_TYPICAL].copy())
    usual = torch.stack([_nats(model, rows).sum(0) for rows in held_out.split(_BLOCK)]).sum(0) / len(held_out)
    encoded = run.schema.encoded(file)
    while block := list(islice(encoded, _BLOCK)):
        nats = _nats(model, torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64))
        most = (nats - usual).argmax(1).tolist()
        for (line, cells, _), row, place in zip(block, nats.tolist(), most, strict=True):
            unseen = sum(not column.seen(cell) for column, cell in zip(run.schema.kept, cells, strict=True))
            yield ScoredRow(line, cells, sum(row), row, place, unseen)


def _nats(model: "TableMADE", rows: "Tensor") -> "Tensor":
    """(B, D), of each value given those visited before it."""
    rows = rows.to(next(model.parameters()).device)
    return -model(rows).log_prob(rows).detach().double().cpu()
