"""Inside the code of a trained model of a table: its use, what each dimension does, what is told of each column."""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer
from chainrule.tasks.code_page import about_code, code_answer, error_words, errors, traversal_words, traversed
from chainrule.tasks.page import check_number, checked_page, inspect_again
from chainrule.tasks.table.codes import code_model
from chainrule.tasks.table.inspection import TableInspection, rows_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.diagnostics.active_units import LatentUse
    from chainrule.diagnostics.report.code_page import Labels
    from chainrule.diagnostics.report.page import Table
    from chainrule.models import TableVAE
    from chainrule.tasks.table.task import TableTask

_PAIRS = 8  # rows that are shown with their reconstructions
_DRAWS = 101  # from the decoder for a typical row
_MOST_LABELS = 10  # categories of a column that colours the map


def inspect_codes(
    run: "TableTask", file: str | None, options: TableInspection, *, out: Path | None, seed: int
) -> Answer:
    """Inspect the code of a run on held-out rows or those of a file."""
    import torch

    from chainrule.diagnostics.active_units import active_units
    from chainrule.diagnostics.report.code_page import code_sections

    check_number("rows", options.rows, 2)
    page, model = checked_page(out, run.path), code_model(run, "cpu", "inspect")
    x = rows_of(run, file, options.rows)
    use = active_units(model, x)
    with torch.no_grad():
        codes = model.codes(x)
        own, other = (-model.decode(z).parts.log_prob(x).mean(0) for z in (codes, codes.roll(1, 0)))
    generator = torch.Generator().manual_seed(seed)
    names = [column.name for column in run.schema.kept]
    pairs_words = (
        f"The first rows, and under each a typical row of its code: of {_DRAWS} draws from the decoder the commonest "
        "category and the median number of each column."
    )
    density = "Of real numbers they are those of a density, and may be below 0."
    sections = code_sections(
        use,
        "row",
        (pairs_words, _pairs(run, model, x[:_PAIRS], generator)),
        (f"{error_words('each column', 'row')} {density}", errors("column", names, own, other)),
        (
            traversal_words(use, "row", " Columns that do not change are left out."),
            _traversals(run, model, use, generator),
        ),
        _labels(run, x),
    )
    nats = {
        "own_code": dict(zip(names, own.tolist(), strict=True)),
        "another": dict(zip(names, other.tolist(), strict=True)),
    }
    lines = [f"{name}: {a:.3f} nats, {b:.3f} with another code" for name, a, b in zip(names, own, other, strict=True)]
    read = f"{len(x):,} held-out rows" if file is None else f"{len(x):,} rows of {file}"
    about = about_code(run, model, f"{run.config.facts['source']['name']}; {read}")
    command = inspect_again(run, file, rows=options.rows, seed=seed)
    return code_answer(
        run, page, use, sections, {"rows": len(x), "column_nats": nats}, lines, about=about, command=command
    )


def _pairs(run: "TableTask", model: "TableVAE", x: "Tensor", generator: "torch.Generator") -> "Table":
    import torch

    from chainrule.diagnostics.report.page import Table

    with torch.no_grad():
        rebuilt = _typical(run, model, model.codes(x), generator)
    cells = zip(run.schema.decode(x.numpy()), rebuilt, strict=True)
    rows = [[what, *row] for pair in cells for what, row in zip(("row", "rebuilt"), pair, strict=True)]
    return Table(["", *(column.name for column in run.schema.kept)], rows)


def _traversals(
    run: "TableTask", model: "TableVAE", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Table]":
    from chainrule.diagnostics.report.page import Table

    found, names = {}, [column.name for column in run.schema.kept]
    for place, values, codes in traversed(use):
        rows = _typical(run, model, codes.to(next(model.parameters())), generator)
        changing = [column for column in range(len(names)) if len({row[column] for row in rows}) > 1]
        cells = [[value, *(row[column] for column in changing)] for value, row in zip(values, rows, strict=True)]
        found[place] = Table(["z", *(names[column] for column in changing)], cells)
    return found


def _typical(run: "TableTask", model: "TableVAE", z: "Tensor", generator: "torch.Generator") -> list[list[str]]:
    """The cells of a typical row of each code (N, L)."""
    import torch

    writer = deepcopy(model)
    writer.exclude(run.schema.unseen())
    with torch.no_grad():
        drawn = writer.decode(z).sample((_DRAWS,), generator=generator)  # (draws, N, D)
    median = drawn.nanmedian(0).values.masked_fill(drawn.isnan().double().mean(0) > 0.5, torch.nan)
    categorical = torch.tensor([column.kind == "categorical" for column in run.schema.kept])
    return list(run.schema.decode(torch.where(categorical, drawn.mode(0).values, median).numpy()))


def _labels(run: "TableTask", x: "Tensor") -> "Labels | None":
    """The last column of few categories, where a table has its labels as a rule, and its cells in the rows."""
    from chainrule.diagnostics.report.code_page import Labels

    for place, column in reversed(list(enumerate(run.schema.kept))):
        if column.kind == "categorical" and 2 <= len(x[:, place].unique()) <= _MOST_LABELS:
            cells = [column.decode(value) or "missing" for value in x[:, place].tolist()]
            return Labels(cells, f"column {column.name}")
    return None
