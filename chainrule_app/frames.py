"""Frames of pandas, polars and Arrow, and arrays: what kinds they were, and frames of those kinds made of cells.

A frame is described by the name of its library and the type of each column. The description is JSON, kept in a run's
directory, so that a run that was fitted on a pandas frame samples pandas frames, also in a later session.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import np
from chainrule_app.readers import tables as table_reader

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


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _check_names(data: Any) -> None:
    """Refuse a frame of pandas with two columns of one name."""
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise ValueError(f"data: expected columns of different names, got {twice!r} twice: rename one")


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
        dated = str(index.dtype).startswith(("datetime", "period")) or isinstance(first, date)
        return data.rename_axis(index="time").reset_index() if dated else data
    there = {str(name) for name in data.columns}
    twice = [
        level for level, name in enumerate(index.names) if str(name) in there
    ]  # as set_index(drop=False) leaves it
    return data.reset_index(level=[level for level in range(index.nlevels) if level not in twice])


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
        present = [value for value in values if value is not None][:2]
        cells[column.name] = present * 2 if len(present) == 1 else present
    for index, name in enumerate(table.names):
        own = (
            frame.iloc[:, index].dtype
            if _is_pandas(frame)
            else frame.schema[index]
            if "schema" in description
            else frame.dtypes[index]
        )
        try:
            again = restore({**description, "names": None}, {name: cells[name]})
            again = (
                again.dtypes.iloc[0]
                if _is_pandas(frame)
                else again.schema[0]
                if "schema" in description
                else again.dtypes[0]
            )
        except Exception:  # whatever a library raises for a type that it cannot make
            again = None
        if again != own and not (own == "object" and not cells[name]):
            raise refused(
                str(table.origin), name, str(getattr(own, "type", own)) if "schema" in description else str(own)
            )


_CHECKED = 1000  # rows


def restore(description: Mapping[str, Any], columns: Mapping[str, Sequence[str | None]]) -> Any:
    """Restore a native frame of the described library and types from text cells; None is a missing one."""
    if description["library"] == "numpy":
        return _array(np.dtype(description["dtype"]), columns)
    types = description["columns"]
    if description["library"] == "pandas":
        import pandas

        made = {name: _pandas_series(cells, types.get(name, _TEXTS)) for name, cells in columns.items()}
        frame = pandas.DataFrame(made)
        names = dict(zip(types, description.get("names") or types, strict=True))
        return frame.set_axis([names.get(name) if names.get(name) is not None else name for name in made], axis=1)
    if "schema" in description:
        import pyarrow

        schema = _unpacked(description["schema"])
        fields = [schema.field(name) for name in columns]
        return pyarrow.table(
            [
                _arrow_array(cells, field.type, types[name])
                for (name, cells), field in zip(columns.items(), fields, strict=True)
            ],
            schema=pyarrow.schema(fields),
        )
    import polars

    return polars.DataFrame([_polars_series(name, cells, types.get(name, _TEXTS)) for name, cells in columns.items()])


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
        _unpacked(schema),
    )
    index = known.get_field_index(name)
    return _packed(known.append(fields) if index < 0 else known.set(index, fields))


_TEXTS: dict[str, Any] = {"kind": "String"}
_TEXT_KINDS = ("String", "Categorical", "Enum")


def _array(dtype: Any, columns: Mapping[str, Sequence[str | None]]) -> Any:
    parse, missing = (float, np.nan) if dtype.kind == "f" else (_whole, 0)
    rows = zip(*columns.values(), strict=True)
    return np.array([[parse(cell) if cell else missing for cell in row] for row in rows], dtype)


def _whole(cell: str) -> int:
    return int(cell.removesuffix(".0"))


_PARSERS: dict[str, Callable[[str], Any]] = {
    "Boolean": lambda cell: cell == "True",
    "Decimal": Decimal,
    "Date": date.fromisoformat,
    "Time": time.fromisoformat,
    "Float32": float,
    "Float64": float,
}


def _parsed(cells: Sequence[str | None], kind: Mapping[str, Any]) -> list[Any]:
    """Return the values that cells spell; a rare value without a name is missing where it is no text."""
    name = kind["kind"]
    if name in _TEXT_KINDS:
        return list(cells)
    parse = _PARSERS.get(name, _whole if name.startswith(("Int", "UInt", "Duration")) else str)
    return [None if not cell or cell == table_reader.OTHER else parse(cell) for cell in cells]


def _typed(cells: Sequence[str | None], kind: Mapping[str, Any]) -> Any:
    """Return cells as a series of polars: moments and durations in nanoseconds, where their type has these."""
    import polars

    from chainrule_app.readers.tables.frame_table import UNITS

    values = _parsed(cells, kind)
    if kind["kind"] == "Datetime":
        plain = [None if value is None else value.removesuffix("+00:00") for value in values]
        texts = polars.Series(
            [text if text is None or "." in text else f"{text}.0" for text in plain], dtype=polars.String
        )
        return texts.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns" if _is_fine(plain) else "us")
    if kind["kind"] == "Duration":
        size = UNITS[kind["unit"]]
        unit = "ns" if size == 1 else "us"
        ticks = [None if value is None else value * size // (1 if unit == "ns" else 1000) for value in values]
        return polars.Series(ticks, dtype=polars.Int64).cast(polars.Duration(unit))
    dtype = polars.String if kind["kind"] in _TEXT_KINDS else getattr(polars, kind["kind"], polars.String)
    return polars.Series(values) if kind["kind"] == "Decimal" else polars.Series(values, dtype=dtype)


def _is_fine(texts: Sequence[str | None]) -> bool:
    """Tell if some of the moments have nanoseconds."""
    return any(text is not None and len(text.partition(".")[2]) > 6 for text in texts)


def _polars_series(name: str, cells: Sequence[str | None], kind: Mapping[str, Any]) -> Any:
    import polars

    native, typed = kind.get("polars", "String"), _typed(cells, kind)
    if native == "Enum":
        return polars.Series(
            name, [cell if cell in kind["categories"] else None for cell in cells], polars.Enum(kind["categories"])
        )
    if native == "Datetime":
        typed = typed.cast(polars.Datetime(kind["time_unit"]))
        if "time_zone" in kind:
            typed = typed.dt.replace_time_zone("UTC").dt.convert_time_zone(kind["time_zone"])
        return typed.alias(name)
    if native == "Duration":
        return typed.cast(polars.Duration(kind["time_unit"])).alias(name)
    if native == "Decimal":
        return typed.cast(polars.Decimal(kind["precision"], kind["scale"])).alias(name)
    return typed.cast(getattr(polars, native)).alias(name)


def _unpacked(schema: str) -> Any:
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.py_buffer(b64decode(schema)))


def _arrow_array(cells: Sequence[str | None], native: Any, kind: Mapping[str, Any]) -> Any:
    import pyarrow
    from pyarrow import compute, types

    if types.is_dictionary(native):
        return _arrow_array(cells, native.value_type, kind).dictionary_encode().cast(native)
    if types.is_run_end_encoded(native):
        return compute.run_end_encode(_arrow_array(cells, native.value_type, kind), native.run_end_type)
    if types.is_decimal(native):
        return pyarrow.array(_parsed(cells, kind), native)
    if types.is_float16(native):
        return pyarrow.array([None if value is None else np.float16(value) for value in _parsed(cells, kind)], native)
    typed = _typed(cells, kind)
    if types.is_timestamp(native) and native.tz is not None:
        plain = typed.to_arrow().cast(pyarrow.timestamp(native.unit))
        return plain.cast(pyarrow.timestamp(native.unit, "UTC")).cast(native)
    return typed.to_arrow().cast(native)


def _pandas_series(cells: Sequence[str | None], kind: Mapping[str, Any]) -> Any:
    import pandas

    native = kind.get("pandas", "object")
    if "arrow" in kind:
        array = _arrow_array(cells, _unpacked(kind["arrow"]).field(0).type, kind)
        return pandas.Series(pandas.array(array, dtype=pandas.ArrowDtype(array.type)))
    if native == "category":
        return pandas.Series(_pandas_categories(cells, kind))
    if kind["kind"] in ("Datetime", "Duration"):
        return _pandas_moments(_typed(cells, kind), native, kind)
    values = _parsed(cells, kind)
    if native == "object":
        if kind.get("stamps"):
            values = [value if value is None else pandas.Timestamp(value) for value in values]
        return pandas.Series(values, dtype=object)
    if native.startswith("complex"):
        return pandas.Series(
            [complex(value) if value and value != table_reader.OTHER else np.nan for value in values], dtype=native
        )
    if None in values and native.startswith(("int", "uint")):
        native = native.replace("uint", "UInt").replace("int", "Int")  # the integers of pandas that may be missing
    if None in values and native == "bool":
        native = "boolean"
    if "storage" in kind and native == "string":
        return pandas.Series(values, dtype=pandas.StringDtype(kind["storage"]))
    return pandas.Series(values, dtype=native)


def _pandas_moments(typed: Any, native: str, kind: Mapping[str, Any]) -> Any:
    import pandas

    if native == "object":
        zone = kind.get("zone")
        values = [None if value is None else value for value in typed.to_list()]
        if kind.get("stamps"):
            values = [
                value
                if value is None
                else (pandas.Timedelta(value) if isinstance(value, timedelta) else pandas.Timestamp(value))
                for value in values
            ]
        del zone
        return pandas.Series(values, dtype=object)
    series = pandas.Series(typed.to_numpy())
    if native.startswith("datetime64") and "," in native:
        zone = native.partition(",")[2].strip(" ]")
        return series.dt.tz_localize("UTC").astype(native) if zone else series
    return series.dt.to_period(native[7:-1]) if native.startswith("period") else series.astype(native)


def _pandas_categories(cells: Sequence[str | None], kind: Mapping[str, Any]) -> Any:
    import pandas

    index = _restored_index(kind["categories"])
    texts = list(map(str, index))
    places = {text: place for place, text in enumerate(texts)}
    if (
        table_reader.OTHER in cells
        and table_reader.OTHER not in places
        and index.map(type).nunique() <= 1
        and all(isinstance(value, str) for value in index)
    ):
        index = index.append(pandas.Index([table_reader.OTHER]))
        places[table_reader.OTHER] = len(texts)
    codes = [places.get(cell, -1) if cell is not None else -1 for cell in cells]
    return pandas.Categorical.from_codes(codes, categories=index, ordered=kind["ordered"])


def _restored_index(content: Mapping[str, Any]) -> Any:
    import pandas

    if "closed" in content:
        left, right = _restored_index(content["left"]), _restored_index(content["right"])
        return pandas.IntervalIndex.from_arrays(left, right, closed=content["closed"])
    values = content["values"]
    parse = {
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "Decimal": Decimal,
        "datetime": datetime.fromisoformat,
    }.get(content["of"])
    values = list(map(parse, values)) if parse is not None else values
    return pandas.Index(values, dtype=content["dtype"])


def load_description(path: Path) -> dict[str, Any] | None:
    """Read a description; None if it is missing or invalid."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    columns = description.get("columns") if isinstance(description, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(kind, dict) and "kind" in kind for kind in columns.values()):
        return None
    return description if description.get("library") in ("pandas", "polars", "pyarrow", "numpy") else None
