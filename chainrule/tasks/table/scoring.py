"""How surprising the rows of a table are to a trained model, and which of their cells."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule.blocks import in_blocks
from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.bounds import refuse_samples
from chainrule.tasks.display import one_line
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models.table_made import TableMADE
    from chainrule.tasks.table.task import TableTask

BLOCK = 1024  # rows computed together
_TYPICAL = 4096  # held-out rows that tell how surprising a column usually is
_HEADING = f"{'line':>8} {'nats':>10}  most surprising cell, and its nats"


@dataclass(frozen=True)
class TableScoring:
    """Score a table: nats of each row, exact under the model, and the cell that surprised most.

    A cell is named by how far it is beyond what is usual in its column. Of a variational autoencoder the nats are a
    bound, at most so many, with the standard error of the draws, and the ELBO; no cell is named.

    Args:
        data: The table.
        json: Print one JSON object a row.
        top: Only so many rows, the most surprising ones.
    """

    samples: int | None = None
    """K, codes drawn for the bound of a variational autoencoder, twice; 100 if not given. More bring it nearer."""


def score_table(run: "TableTask", file: str, options: TableScoring, *, device: str) -> Answer:
    """Score the rows of a file."""
    if run.has_code:
        from chainrule.tasks.table.codes import score_by_bounds

        return score_by_bounds(run, file, options, device=device)
    refuse_samples(options.samples, run.config.model)
    count, total = 0, 0.0

    def records() -> Iterator[Record]:
        nonlocal count, total
        for record in _scored(run, file, device):
            count, total = count + 1, total + record.surprise
            yield record
        if not count:
            raise ValueError(f"{file}: expected at least one row to score, got none")

    def closing() -> Iterable[str]:
        yield f"{count:,} rows, {total / count:.4f} nats per row"

    def entry() -> LedgerEntry:
        return LedgerEntry(run.basis, total, count * len(run.schema.kept), "")

    return Answer(records(), _HEADING, closing, entry)


def nats_of(model: "TableMADE", rows: "Tensor") -> "Tensor":
    """(B, D), of each value given those visited before it."""
    rows = rows.to(next(model.parameters()).device)
    return -model(rows).log_prob(rows).detach().double().cpu()


def usual_nats(run: "TableTask", model: "TableMADE") -> "Tensor":
    """(D,), the mean of each column over held-out rows."""
    import torch

    held_out = torch.from_numpy(run.table().valid[:_TYPICAL].copy())
    return torch.stack([nats_of(model, rows).sum(0) for rows in held_out.split(BLOCK)]).sum(0) / len(held_out)


def _scored(run: "TableTask", file: str, device: str) -> Iterator[Record]:
    import torch

    model, columns = run.model(device), run.schema.kept
    names = [column.name for column in columns]
    usual = usual_nats(run, model)
    for block in in_blocks(run.schema.encoded(file), BLOCK):
        nats = nats_of(model, torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64))
        most = (nats - usual).argmax(1).tolist()
        for (line, cells, _), row, place in zip(block, nats.tolist(), most, strict=True):
            values: dict[str, Any] = {
                "line": line,
                "nats": sum(row),
                "most": names[place],
                "columns": dict(zip(names, row, strict=True)),
                "unseen": sum(not column.seen(cell) for column, cell in zip(columns, cells, strict=True)),
                "row": dict(zip(names, cells, strict=True)),
            }
            cell = one_line(f"{names[place]}={cells[place]}")
            yield Record(values, f"{line:>8} {sum(row):>10.3f}  {cell} ({row[place]:.2f})", sum(row))
