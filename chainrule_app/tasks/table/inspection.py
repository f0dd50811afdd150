"""Inside a trained model of a table: the nats of each column, and the earlier columns that inform about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule_app.heavy import torch
from chainrule_app.printing import aligned
from chainrule_app.results import Report
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.output import inside, inspect_again
from chainrule_app.tasks.table.verbs import nats_of

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule_app.tasks.table.task import TableTask

_SHOWN, _LEAST = 3, 0.005  # columns named with another, and the least nats


@dataclass(frozen=True)
class TableInspection(CheckedOptions):
    """Show how well a trained model of a table predicts each column, and from which other columns.

    The model predicts a column from the earlier ones. Shuffling one of these over the rows (permutation importance)
    increases the nats by the information that it gives about the column. Reads held-out rows, or DATA.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Table to read; the held-out rows by default.",
    }

    rows: Annotated[int, Range(2, 1 << 30)] = 1024
    """Maximum number of rows to read."""


def inspect_table(run: "TableTask", file: str | None, options: TableInspection, *, seed: int) -> Report:
    from chainrule_app.pages.finding_pages import table_page

    x, model = rows_of(run, file, options.rows), run.model()
    generator = torch.Generator().manual_seed(seed)
    baseline, names = nats_of(model, x).mean(0), [column.name for column in run.schema.kept]
    gains: list[dict[str, float]] = [{} for _ in names]
    for index, name in enumerate(names):
        shuffled = x.clone()
        shuffled[:, index] = x[torch.randperm(len(x), generator=generator), index]
        costs = nats_of(model, shuffled).mean(0) - baseline
        for later in range(index + 1, len(names)):
            gains[later][name] = costs[later].item()
    columns = [
        {"column": name, "nats": nats, "told_by": by}
        for name, nats, by in zip(names, baseline.tolist(), gains, strict=True)
    ]
    lines = (f"{len(x):,} rows, {baseline.sum():.4f} nats per row", *_table(columns))
    figures = {"run": str(run.path), "rows": len(x), "columns": columns}
    command = inspect_again(run, file, rows=options.rows, seed=seed)
    return Report(figures, lines, str(table_page(figures, inside(run), command)))


def rows_of(run: "TableTask", file: str | None, count: int) -> "Tensor":
    """Return (N, D) held-out rows, or rows of a file."""
    if file is None:
        return torch.from_numpy(run.table().valid[:count].copy())
    rows = [numbers for _, _, numbers in islice(run.schema.encoded(file), count)]
    if len(rows) < 2:
        raise ValueError(f"{file}: expected at least two rows, to shuffle cells between them, got {len(rows)}")
    return torch.tensor(rows, dtype=torch.float64)


def _table(columns: list[dict[str, Any]]) -> Iterable[str]:
    sources = []
    for column in columns:
        by = sorted(column["told_by"].items(), key=lambda entry: -entry[1])[:_SHOWN]
        sources.append(", ".join(f"{one_line(name)} {nats:.3f}" for name, nats in by if nats >= _LEAST) or "-")
    cells = [(one_line(column["column"]), f"{column['nats']:.3f}") for column in columns]
    lines = aligned([("column", "nats"), *cells])
    return map("  ".join, zip(lines, ["informed by (nats)", *sources], strict=True))
