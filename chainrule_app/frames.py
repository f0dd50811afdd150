"""Frames of pandas, polars and Arrow, and arrays: what kinds they were, and frames of those kinds made of cells.

A frame is described by the name of its library and the type of each column. The description is JSON, kept in a run's
directory, so that a run that was fitted on a pandas frame samples pandas frames, also in a later session.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError
from chainrule_app.restored_frames import parser_of, restore, unpacked

if TYPE_CHECKING:
    from chainrule_app.readers.tables.frame_table import FrameTable
    from chainrule_app.results import Result

_LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf", "narwhals")


def is_frame(data: Any) -> bool:
    """Tell if data are a frame or series of a library that narwhals supports.

    >>> is_frame([1, 2]), is_frame("rows.csv")
    (False, False)
    """
    if type(data).__module__.partition(".")[0] not in _LIBRARIES:
        return False
    if _is_pandas(data) and getattr(data, "ndim", 0) == 2:
        _check_names(data)
    import narwhals as nw

    native = nw.from_native(data, allow_series=True, pass_through=True)
    return isinstance(native, nw.DataFrame | nw.LazyFrame | nw.Series)


def is_series(data: Any) -> bool:
    """Tell if a frame or series, see `is_frame`, is a series."""
    return not hasattr(type(data), "columns")


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _check_names(data: Any) -> None:
    """Refuse a frame of pandas with two columns of one name."""
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise OptionError("data", f"expected columns of different names, got {twice!r} twice", "rename one")


def as_frame(data: Any) -> Any:
    """Convert a frame or series to a frame of pandas, polars or Arrow; a date or named index becomes first columns."""
    import narwhals as nw

    frame = nw.from_native(data, allow_series=True)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    library = frame.implementation.value
    if library in ("pandas", "modin", "cudf"):
        return _with_index(frame.to_pandas())
    frame = frame.alias(frame.name or "value").to_frame() if isinstance(frame, nw.Series) else frame
    return frame.to_native() if library in ("polars", "pyarrow") else frame.to_arrow()


def _with_index(data: Any) -> Any:
    """Return a frame of pandas in which an index of dates, with names or of several levels is made columns."""
    data = data.to_frame("value" if data.name is None else data.name) if data.ndim == 1 else data
    index = data.index
    if index.nlevels == 1 and index.name is None:
        first = index[0] if len(index) and index.dtype == "object" else None
        if not (str(index.dtype).startswith(("datetime", "period")) or isinstance(first, date)):
            return data
        data = data.rename_axis(index="time")
        index = data.index
    columns = {str(name): place for place, name in enumerate(data.columns)}
    apart = []
    for level, name in enumerate(index.names):
        if str(name) not in columns:
            apart.append(level)
        elif list(index.get_level_values(level).astype(str)) != list(data.iloc[:, columns[str(name)]].astype(str)):
            raise OptionError("data", f"the index is called {name!r}, as a column of other values is", "rename one")
    return data.reset_index(level=apart).reset_index(drop=True)  # set_index(drop=False) leaves a level a column, too


def records_of(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, as `as_frame` returns it, as dictionaries."""
    import narwhals as nw

    return [{name: _listed(cell) for name, cell in row.items()} for row in nw.from_native(frame).iter_rows(named=True)]


def first_record(frame: Any) -> dict[str, Any]:
    """Return the first row of a frame, as `as_frame` returns it, as a dictionary; an empty one where there is none."""
    return next(iter(records_of(frame[:1])), {})


def _listed(cell: Any) -> Any:
    """Return a cell of a frame of pandas that holds an array, as one that was a file of Parquet does, as a list."""
    return cell.tolist() if type(cell).__module__ == "numpy" and cell.ndim else cell


def cells_of(values: Mapping[Any, Any], description: Mapping[str, Any] | None) -> dict[str, str]:
    """Return values of described columns as cells of a file."""
    from chainrule_app.readers.origin import Origin
    from chainrule_app.typed_columns import records_table

    ((_, cells),) = records_table([values], Origin("where", "index"), description).rows()
    return {str(name): cell or "" for name, cell in zip(values, cells, strict=True)}


def describe(frame: Any, table: "FrameTable") -> dict[str, Any]:
    """Describe the library of a frame, as `as_frame` returns it, and the types of its columns, as JSON."""
    library = type(frame).__module__.partition(".")[0]
    columns = {}
    for index, column in enumerate(table.columns):
        kind = column.take(slice(0, 0)).dtype
        own: dict[str, Any] = {"kind": "Decimal" if column.spelt else str(kind.base_type())}
        if column.unit:
            own["unit"] = column.unit
        if library == "pandas":
            own |= _pandas_type(frame.iloc[:, index])
        elif library == "polars":
            own |= _polars_type(frame.dtypes[index])
        columns[column.name] = own
    description: dict[str, Any] = {"library": library, "columns": columns}
    if library == "pandas" and not all(isinstance(name, str) for name in frame.columns):
        description["names"] = [
            name if isinstance(name, int | float | str) else None for name in map(_plain, frame.columns)
        ]
    if library == "pyarrow":
        description["schema"] = _packed(frame.schema.remove_metadata())
    return description


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _packed(schema: Any) -> str:
    return b64encode(schema.serialize().to_pybytes()).decode("ascii")


def _polars_type(kind: Any) -> dict[str, Any]:
    own: dict[str, Any] = {"polars": str(kind.base_type())}
    names = ("time_unit", "time_zone", "precision", "scale")
    own |= {name: getattr(kind, name) for name in names if getattr(kind, name, None) is not None}
    return own | ({"categories": kind.categories.to_list()} if own["polars"] == "Enum" else {})


def _pandas_type(series: Any) -> dict[str, Any]:
    from chainrule_app.typed_columns import kind_of_objects

    kind = series.dtype
    own: dict[str, Any] = {"pandas": str(kind)}
    if hasattr(kind, "pyarrow_dtype"):
        import pyarrow

        own["arrow"] = _packed(pyarrow.schema([pyarrow.field("", kind.pyarrow_dtype)]))
    elif own["pandas"] == "category":
        own |= {"ordered": bool(kind.ordered), "categories": _pandas_index(kind.categories)}
    elif own["pandas"] == "object":
        own["of"] = kind_of_objects(series)
        own["stamps"] = any(hasattr(value, "to_pydatetime") or hasattr(value, "to_pytimedelta") for value in series)
    elif hasattr(kind, "storage"):
        own["storage"] = kind.storage
    return own


def _pandas_index(index: Any) -> dict[str, Any]:
    """Describe the categories of pandas: intervals by both of their ends."""
    if str(index.dtype).startswith("interval"):
        ends = {"left": _pandas_index(index.left), "right": _pandas_index(index.right)}
        return {"closed": index.closed, **ends}
    values = [_plain(value) if isinstance(_plain(value), bool | int | float | str) else str(value) for value in index]
    kind = type(index[0]).__name__ if len(index) and str(index.dtype) == "object" else ""
    return {"values": values, "dtype": str(index.dtype), "of": kind}


def check_restorable(frame: Any, table: "FrameTable", description: Mapping[str, Any]) -> None:
    """Refuse a frame with a column whose type does not come back from its cells."""
    from chainrule_app.readers.tables.frame_table import refused

    cells: dict[str, list[str | None]] = {}
    for column in table.columns:
        values = column.cells(slice(0, _CHECKED), str(table.origin)).texts()
        present: list[str | None] = [value for value in values if value is not None]
        cells[column.name] = present[:2]
    for index, name in enumerate(table.names):
        own = _type_at(frame, index)
        try:
            again = _type_at(restore({**description, "names": None}, {name: cells[name]}), 0)
        except Exception:  # whatever a library raises for a type that it cannot make
            again = None
        if again != own and (cells[name] or str(own) != "object"):
            raise refused(str(table.origin), name, str(own))


def _type_at(frame: Any, index: int) -> Any:
    """Return the type of a column of a frame."""
    if _is_pandas(frame):
        return frame.dtypes.iloc[index]
    return frame.dtypes[index] if hasattr(frame, "dtypes") else frame.schema[index].type


_CHECKED = 1000  # rows


_NUMBERS = {"int": ("Int64", "int64"), "float": ("Float64", "float64")}


def like(data: Any, result: "Result") -> Any:
    """Return a result as the same kind of frame as `data`, with its types; the result itself if `data` are no frame.

    A column that the frame lacks, or that is empty there, gets the type of its values.
    """
    if not is_frame(data):
        return result
    from chainrule_app.readers.origin import Origin
    from chainrule_app.typed_columns import frame_table, kind_of_objects

    frame, cells = as_frame(data), result.cells()
    table = frame_table(frame, Origin("complete", "index"))
    description = describe(frame, table)
    empty = {column.name for column in table.columns if (own := column.take(slice(None))).null_count() == len(own)}
    for name in cells.keys() - (set(table.names) - empty):
        kind, native = _NUMBERS.get(kind_of_objects(result[name]), ("String", "object"))
        description["columns"][name] = {"kind": kind, "pandas": native, "polars": kind}
        if "schema" in description:
            description["schema"] = _with_field(description["schema"], name, native)
    return restore({**description, "names": None}, cells)


def _with_field(schema: str, name: str, native: str) -> str:
    """Return a schema of Arrow with one more field, or another type of one."""
    import pyarrow

    fields, known = (
        pyarrow.field(name, {"object": "string", "float64": "double"}.get(native, native)),
        unpacked(schema),
    )
    index = known.get_field_index(name)
    return _packed(known.append(fields) if index < 0 else known.set(index, fields))


def describe_labels(labels: Sequence[Any]) -> dict[str, Any] | None:
    """Describe the type of labels, which their names do not tell, as JSON; None of texts."""
    from chainrule_app.typed_columns import kind_of_objects

    native = {"int": "Int64", "bool": "Boolean", "float": "Float64"}.get(kind_of_objects(labels))
    return None if native is None else {"library": "labels", "columns": {"label": {"kind": native}}}


def value_parser(path: Path, name: str) -> Callable[[str], Any] | None:
    """Return what makes the values, as their owner gave them, of the cells of a column or label; None of texts.

    Args:
        path: of a description, which may be missing.
        name: of the column, or "label".
    """
    return parser_of(load_description(path), name)


def load_description(path: Path) -> dict[str, Any] | None:
    """Read a description; None if it is missing or invalid."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    columns = description.get("columns") if isinstance(description, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(kind, dict) and "kind" in kind for kind in columns.values()):
        return None
    return description if description.get("library") in ("pandas", "polars", "pyarrow", "numpy", "labels") else None
