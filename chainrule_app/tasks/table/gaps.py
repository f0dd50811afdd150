"""Gaps of rows: what they may hold, and draws of them."""

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from chainrule_app.heavy import torch

if TYPE_CHECKING:
    from torch import Generator

    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.readers.tables.partial_row import PartialRow
    from chainrule_app.readers.tables.prepare import TableSchema


def is_seen(column: "ColumnSchema", value: str) -> bool:
    """Tell if a cell is no category that the model takes for any rare one."""
    return column.kind != "categorical" or column.seen(value) or column.is_missing(value)


def empty_columns(schema: "TableSchema") -> set[int]:
    """Return the columns of which training had no value."""
    return {
        index
        for index, column in enumerate(schema.kept)
        if column.kind == "categorical" and not {*column.categories} - {None, "<other>"}
    }


def restricted(
    trained: "TableMADE | TableEnsemble | TableNeighbours",
    schema: "TableSchema",
    gaps: Sequence[bool],
    *,
    missing: bool,
    other: bool,
) -> "TableMADE | TableEnsemble | TableNeighbours":
    """Return a copy of a model in which the gaps hold nothing that training lacked.

    Args:
        trained: the model.
        schema: its columns.
        gaps: (D,) columns of gaps; the others keep their distributions.
        missing: whether a gap may hold a missing value.
        other: whether a gap may hold any rare category, `<other>`.
    """
    model = deepcopy(trained)
    lists = [schema.unseen()]
    if not missing:
        lists.append([column.missing_symbol() for column in schema.kept])
    if not other:
        lists.append([column.other_symbol() for column in schema.kept])
    empty = empty_columns(schema)
    for symbols in lists:
        possible = zip(symbols, gaps, range(len(symbols)), strict=True)
        model.exclude([symbol if gap and index not in empty else None for symbol, gap, index in possible])
    return model


def complete_block(
    trained: "TableMADE | TableEnsemble | TableNeighbours",
    schema: "TableSchema",
    block: "Sequence[PartialRow]",
    particles: int,
    generator: "Generator",
    *,
    missing: bool,
    other: bool,
) -> tuple[list[list[str | None]], list[float] | None]:
    """Draw the gaps of rows that know the same columns; also return each row's effective draws, None if exact."""
    from chainrule.decoding import complete

    known = block[0].known
    model = restricted(trained, schema, [not is_known for is_known in known], missing=missing, other=other)
    x = model.to_sequence(torch.tensor([row.numbers for row in block], dtype=torch.float64))
    places = model.to_sequence(torch.tensor([row.known for row in block]))
    exact = bool((places == places.cummin(1).values).all())  # everything known comes first
    completion = complete(model, x, places, particles=1 if exact else particles, generator=generator)
    drawn = schema.decode(model.from_sequence(completion.x).cpu().numpy())
    cells = [row.filled(own) for row, own in zip(block, drawn, strict=True)]
    return cells, None if exact else completion.effective_particles.tolist()
