"""Batches of rows as engines pass them: Arrow tables and record batches, and frames of polars and pandas."""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars


def frame_of(batch: Any) -> "nw.DataFrame[Any]":
    """Return a batch as a frame of narwhals.

    >>> frame_of(polars.DataFrame({"a": [1]})).columns
    ['a']
    """
    if _is_record_batch(batch):
        import pyarrow

        batch = pyarrow.Table.from_batches([batch])
    frame = nw.from_native(batch, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise ValueError(
            f"batch: expected a table of Arrow or a frame of polars or pandas, got a {type(batch).__name__}: Ray Data "
            'passes tables with batch_format="pyarrow"'
        )
    return frame


def with_columns(batch: Any, columns: Sequence[polars.Series]) -> Any:
    """Return a batch of the same kind with more columns, or other values in a column, whose type stays."""
    frame = frame_of(batch)
    library = frame.implementation.value
    if library == "polars":
        return frame.to_native().with_columns(columns)
    if library == "pandas":
        return _with_series(frame.to_native(), columns)
    table = frame.to_arrow()
    for column in columns:
        values, index = column.to_arrow(), table.schema.get_field_index(column.name)
        if index < 0:
            table = table.append_column(column.name, values)
        else:
            kind = table.field(index).type
            kind = values.type if kind == "null" else kind
            table = table.set_column(index, column.name, values.cast(kind))
    return table.to_batches()[0] if _is_record_batch(batch) and len(table) else table


def _is_record_batch(batch: Any) -> bool:
    return type(batch).__module__.partition(".")[0] == "pyarrow" and type(batch).__name__ == "RecordBatch"


_PANDAS: dict[Any, str] = {
    polars.Float64: "float64",
    polars.Int64: "Int64",
    polars.Boolean: "boolean",
    polars.String: "str",
}


def _with_series(frame: Any, columns: Sequence[polars.Series]) -> Any:
    """Return a pandas frame with more columns, whose types do not depend on what is missing."""
    import pandas

    made = {}
    for column in columns:
        own = frame[column.name].dtype if column.name in frame.columns else None
        values = pandas.Series(column.to_list(), index=frame.index, dtype=own or _PANDAS.get(column.dtype, "object"))
        made[column.name] = values
    return frame.assign(**made)
