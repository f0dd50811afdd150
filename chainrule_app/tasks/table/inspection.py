"""Inside a trained model of a table: the nats of each column, and the earlier columns that inform about it.

For a model with a code, a page: how much of the code is in use, the effect of each dimension, the nats by column.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from chainrule.printing import one_line
from chainrule_app.heavy import torch
from chainrule_app.results import Report
from chainrule_app.tasks.codes import code_report, error_words, errors, traversals_of
from chainrule_app.tasks.config import CheckedOptions, within
from chainrule_app.tasks.display import aligned, counted
from chainrule_app.tasks.output import inspect_again
from chainrule_app.tasks.table.verbs import nats_of

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics import LatentUse
    from chainrule.models import TableVAE
    from chainrule_app.pages.code_page import Labels
    from chainrule_app.pages.page import Table
    from chainrule_app.tasks.table.task import TableTask

_SHOWN, _LEAST = 3, 0.005  # columns named with another, and the least nats
_PAIRS = 8  # rows that are shown with their reconstructions
_DRAWS = 101  # from the decoder for a typical row
_MOST_LABELS = 10  # categories of a column that colours the map


@dataclass(frozen=True)
class TableInspection(CheckedOptions):
    """Show how well a trained model of a table predicts each column, and from which other columns.

    The model predicts a column from the earlier ones. Shuffling one of these over the rows (permutation importance)
    increases the nats by the information that it gives about the column. Reads held-out rows, or DATA.

    For a model with a code, writes a page (HTML, one file, needs no network): how much of the code is in use, and
    remedies if it collapsed; rows and their reconstructions; nats by column; rows along each active dimension; a map of
    the codes, coloured by the last column with few categories.

    Args:
        data: Table to read; the held-out rows by default.
    """

    rows: int = within(1024, 2, 1 << 30)
    """Maximum number of rows to read."""


def inspect_table(run: "TableTask", file: str | None, options: TableInspection, *, seed: int) -> Report:
    if run.has_code:
        return inspect_codes(run, file, options, seed=seed)
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
    return Report({"run": str(run.path), "rows": len(x), "columns": columns}, lines)


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


def inspect_codes(run: "TableTask", file: str | None, options: TableInspection, *, seed: int) -> Report:
    from chainrule.diagnostics import active_units

    model = run.code_model("cpu", "inspect")
    x = rows_of(run, file, options.rows)
    use = active_units(model, x)
    with torch.no_grad():
        codes = model.codes(x)
        own, other = (-model.decode(z).parts.log_prob(x).mean(0) for z in (codes, codes.roll(1, 0)))
    generator = torch.Generator().manual_seed(seed)
    names = [column.name for column in run.schema.kept]
    pairs_words = (
        f"The first rows, and below each a typical row decoded from its code: each column's most frequent category or "
        f"median over {_DRAWS} draws."
    )
    density = "Real columns have a density, whose nats may be negative."
    nats = {
        "own_code": dict(zip(names, own.tolist(), strict=True)),
        "another": dict(zip(names, other.tolist(), strict=True)),
    }
    read = f"{len(x):,} held-out rows"
    if file is not None:
        read = f"{counted(len(x), 'row')} of {run.source_names.get(str(file), file)}"
    return code_report(
        run,
        model,
        use,
        "row",
        pairs=(pairs_words, _pairs(run, model, x[:_PAIRS], generator)),
        error=(f"{error_words('each column', 'row')} {density}", errors("column", names, own, other)),
        traversals=(" Constant columns are omitted.", _traversals(run, model, use, generator)),
        labels=_labels(run, x),
        facts={"rows": len(x), "column_nats": nats},
        lines=[
            f"{name}: {a:.3f} nats, {b:.3f} with another code" for name, a, b in zip(names, own, other, strict=True)
        ],
        read=f"{run.facts.source.name}; {read}",
        command=inspect_again(run, file, rows=options.rows, seed=seed),
    )


def _pairs(run: "TableTask", model: "TableVAE", x: "Tensor", generator: "torch.Generator") -> "Table":
    from chainrule_app.pages.page import Table

    with torch.no_grad():
        rebuilt = _typical(run, model, model.codes(x), generator)
    cells = zip(_texts(run.schema.decode(x.numpy())), rebuilt, strict=True)
    rows = [[what, *row] for pair in cells for what, row in zip(("row", "rebuilt"), pair, strict=True)]
    return Table(["", *(column.name for column in run.schema.kept)], rows)


def _traversals(
    run: "TableTask", model: "TableVAE", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Table]":
    from chainrule_app.pages.page import Table

    tables, names = {}, [column.name for column in run.schema.kept]
    for index, values, codes in traversals_of(use):
        rows = _typical(run, model, codes.to(next(model.parameters())), generator)
        changing = [column for column in range(len(names)) if len({row[column] for row in rows}) > 1]
        cells = [[value, *(row[column] for column in changing)] for value, row in zip(values, rows, strict=True)]
        tables[index] = Table(["z", *(names[column] for column in changing)], cells)
    return tables


def _texts(rows: "Iterable[list[str | None]]") -> list[list[str]]:
    """Return cells as a page shows them."""
    return [[cell or "" for cell in row] for row in rows]


def _typical(run: "TableTask", model: "TableVAE", z: "Tensor", generator: "torch.Generator") -> list[list[str]]:
    """Decode a typical row from each code (N, L)."""
    drawn = decoded_draws(run, model, z, _DRAWS, generator)
    median = drawn.nanmedian(0).values.masked_fill(drawn.isnan().double().mean(0) > 0.5, torch.nan)
    categorical = torch.tensor([column.kind == "categorical" for column in run.schema.kept])
    return _texts(run.schema.decode(torch.where(categorical, drawn.mode(0).values, median).numpy()))


def decoded_draws(
    run: "TableTask", model: "TableVAE", z: "Tensor", draws: int, generator: "torch.Generator"
) -> "Tensor":
    """Draw rows from each code (N, L), (draws, N, D)."""
    writer = deepcopy(model)
    writer.exclude(run.schema.unseen())
    with torch.no_grad():
        return writer.decode(z).sample((draws,), generator=generator)


def _labels(run: "TableTask", x: "Tensor") -> "Labels | None":
    """Return the last column with few categories, usually the labels, and its cells."""
    from chainrule_app.pages.code_page import Labels

    for index, column in reversed(list(enumerate(run.schema.kept))):
        if column.kind == "categorical" and 2 <= len(x[:, index].unique()) <= _MOST_LABELS:
            cells = [column.decode(value) or "missing" for value in x[:, index].tolist()]
            return Labels(cells, f"column {column.name}")
    return None
