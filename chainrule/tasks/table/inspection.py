"""Inside a trained model of a table: how surprising each column is, and which earlier column it is known from."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import one_line
from chainrule.tasks.page import check_number

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.tasks.table.task import TableTask

_SHOWN, _LEAST = 3, 0.005  # columns named with another, and the least nats


@dataclass(frozen=True)
class TableInspection:
    """Show how well a trained model of a table knows each column, and from which other column.

    A column is predicted from those before it. One of them at a time is shuffled over the rows, which keeps its values
    and breaks its ties: the nats that a value costs then in addition are what the column tells of it. Reads held-out
    rows, or those of DATA.

    Of a model with a code, a page (HTML, one file, needs no network): how much of the code is in use, and if it
    collapsed what helps; rows and their reconstructions; nats by column; rows along each active dimension; a map of the
    codes, coloured by the last column of few categories.

    Args:
        data: A table to read in place of the held-out rows.
        seed: Seed of the shuffling.
    """

    rows: int = 1024
    """Rows to read."""


def inspect_table(run: "TableTask", file: str | None, options: TableInspection, *, seed: int) -> Answer:
    """Inspect a run on its held-out rows, or on those of a file."""
    import torch

    from chainrule.tasks.table.scoring import nats_of

    check_number("rows", options.rows, 2)
    x, model = rows_of(run, file, options.rows), run.model()
    generator = torch.Generator().manual_seed(seed)
    usual, names = nats_of(model, x).mean(0), [column.name for column in run.schema.kept]
    told: list[dict[str, float]] = [{} for _ in names]
    for place, name in enumerate(names):
        shuffled = x.clone()
        shuffled[:, place] = x[torch.randperm(len(x), generator=generator), place]
        costs = nats_of(model, shuffled).mean(0) - usual
        for later in range(place + 1, len(names)):
            told[later][name] = costs[later].item()
    columns = [
        {"column": name, "nats": nats, "told_by": by}
        for name, nats, by in zip(names, usual.tolist(), told, strict=True)
    ]
    lines = [f"{len(x):,} rows, {usual.sum():.4f} nats per row", *_table(columns)]
    return Answer(iter([Record({"run": str(run.path), "rows": len(x), "columns": columns}, "\n".join(lines))]))


def rows_of(run: "TableTask", file: str | None, count: int) -> "Tensor":
    """(N, D) of the held-out rows, or of a file."""
    import torch

    if file is None:
        return torch.from_numpy(run.table().valid[:count].copy())
    rows = [numbers for _, _, numbers in islice(run.schema.encoded(file), count)]
    if len(rows) < 2:
        raise ValueError(f"{file}: expected at least two rows, to shuffle cells between them, got {len(rows)}")
    return torch.tensor(rows, dtype=torch.float64)


def _table(columns: list[dict[str, Any]]) -> Iterable[str]:
    width = max(len("column"), *(len(one_line(column["column"])) for column in columns))
    yield f"{'column':<{width}} {'nats':>8}  known from, and by how many nats"
    for column in columns:
        by = sorted(column["told_by"].items(), key=lambda entry: -entry[1])[:_SHOWN]
        named = ", ".join(f"{one_line(name)} {nats:.3f}" for name, nats in by if nats >= _LEAST)
        yield f"{one_line(column['column']):<{width}} {column['nats']:>8.3f}  {named or '-'}"
