"""Frames of pandas, polars and Arrow, and arrays: cells of text, and frames of them with the dtypes that they had.

A frame is described by the name of its library and the dtype of each column. The description is JSON, kept in a run's
directory, so that a run that was fitted on a pandas frame samples pandas frames, also in a later session.
"""

import csv
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule_app.readers import tables as table_reader

if TYPE_CHECKING:
    from chainrule_app.results import Result
from chainrule.files import naming

_TRUE = "True"
_TICK = timedelta(microseconds=1)
_UNITS = {"days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000,
          "milliseconds": 1_000, "microseconds": 1}  # fmt: skip


def is_frame(data: Any) -> bool:
    """Tell if data are a frame or series of a library that narwhals supports.

    >>> is_frame([1, 2]), is_frame("rows.csv")
    (False, False)
    """
    if type(data).__module__.partition(".")[0] not in ("pandas", "polars", "pyarrow", "modin", "cudf", "narwhals"):
        return False
    import narwhals as nw

    if type(data).__module__.partition(".")[0] == "pandas" and getattr(data, "ndim", 0) == 2:
        _check_names(data)
    native = nw.from_native(data, allow_series=True, pass_through=True)
    return isinstance(native, nw.DataFrame | nw.LazyFrame | nw.Series)


def _check_names(data: Any) -> None:
    """Refuse a frame of pandas with two columns of one name."""
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise ValueError(f"data: expected columns of different names, got {twice!r} twice: rename one")


def _with_index(data: Any) -> Any:
    """Make the levels of an index the first columns of a frame of pandas; a level that is a column already is left out.

    Raises:
        ValueError: a column has the name of a level, and other values.
    """
    for name in data.index.names:
        if name is not None and str(name) in data.columns:
            level = data.index.get_level_values(name)
            if list(level.astype(str)) != list(data[str(name)].astype(str)):
                raise ValueError(f"data: the index is called {name!r}, as a column of other values is: rename one")
            if data.index.nlevels == 1:
                return data.reset_index(drop=True)
            data = data.droplevel(name)
    return data.reset_index()


def as_frame(data: Any) -> Any:
    """Convert a frame or series to a narwhals DataFrame; a date or named index becomes the first column."""
    import narwhals as nw

    if type(data).__module__.partition(".")[0] == "pandas":
        if data.ndim == 1:
            data = data.to_frame(data.name if data.name is not None else "value")
        if str(data.index.dtype).startswith("period"):
            data = data.set_axis(data.index.to_timestamp())
        names = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in data.columns]
        data = data.set_axis(names, axis=1)
        if str(data.index.dtype).startswith("datetime"):
            data = data.rename_axis(index=data.index.name or "time")
        if any(name is not None for name in data.index.names):
            data = _with_index(data)
        _check_names(data)
    frame = nw.from_native(data, allow_series=True)
    if isinstance(frame, nw.Series):
        return frame.alias(frame.name or "value").to_frame()
    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


def write_csv(
    frame: Any, path: Path, description: Mapping[str, Any], *, local: bool = True, header: bool = True
) -> None:
    """Write a narwhals DataFrame as described; times are in UTC, or `local` with the name of their zone."""
    units = {name: dtype.get("unit", "microseconds") for name, dtype in description["columns"].items()}
    columns = [_cells(frame[name].to_list(), name, local, units.get(name, "microseconds")) for name in frame.columns]
    with naming(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if header:
            writer.writerow(frame.columns)
        if len(columns) == 1:  # a row of one empty cell would be an empty line, which readers pass over
            columns = [[cell or "NA" for cell in columns[0]]]
        writer.writerows(zip(*columns, strict=True))


def _cells(values: Sequence[Any], name: str, local: bool, unit: str) -> list[str]:
    check_cells(name, values)
    fine = any(getattr(value, "microsecond", 0) for value in values)  # all times are written alike
    precision = "microseconds" if fine else "seconds"
    return ["" if _is_missing(value) else _cell(value, name, precision, local, unit) for value in values]


def check_cells(name: str, values: Iterable[Any]) -> None:
    """Refuse values that are no cells of a table, such as lists and arrays."""
    for value in values:
        if isinstance(value, list | dict | tuple | set | bytes) or getattr(value, "ndim", None):
            kind = type(value).__name__
            raise ValueError(f"{name}: expected numbers, texts, booleans or dates, got {kind}: leave it out")


def _cell(value: Any, name: str, precision: str, local: bool, unit: str) -> str:
    if isinstance(value, datetime):
        zone = str(value.tzinfo)
        if local and value.tzinfo is not None and table_reader.named_zone(zone) is not None:
            return f"{value.isoformat(' ', precision)}[{zone}]"
        value = value if local or value.tzinfo is None else value.astimezone(UTC)
        return value.isoformat(" ", precision)
    if isinstance(value, timedelta):
        number, rest = divmod(value // _TICK, _UNITS[unit])
        if rest:
            raise ValueError(f"{name}: expected whole {unit}, as in training, got {value}: round it")
        return str(number)
    return str(value)


def cells_of(values: Mapping[str, Any], description: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the cells of values of described columns."""
    columns = {} if description is None else description["columns"]
    units = {name: columns.get(name, {}).get("unit", "microseconds") for name in map(str, values)}
    return {
        name: _cells([value], name, False, units[name])[0] for name, value in zip(units, values.values(), strict=True)
    }


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and isnan(value))


def describe(frame: Any) -> dict[str, Any]:
    """Describe the library of a narwhals DataFrame and its dtypes, as JSON."""
    description: dict[str, Any] = {
        "library": frame.implementation.value,
        "columns": {name: _dtype(frame[name]) for name in frame.columns},
    }
    if description["library"] == "pyarrow":  # kinds of strings, digits of decimals: narwhals does not tell them apart
        schema = frame.to_native().schema.remove_metadata()
        description["schema"] = b64encode(schema.serialize().to_pybytes()).decode("ascii")
    return description


_OBJECTS = {Decimal: "Decimal", date: "Date", time: "Time", bool: "Boolean", int: "Int64", float: "Float64"}


def _dtype(series: Any) -> dict[str, Any]:
    kind = series.dtype
    description: dict[str, Any] = {"kind": type(kind).__name__ if not isinstance(kind, type) else kind.__name__}
    if description["kind"] == "Object":  # pandas has no dtype for decimals and dates
        description["kind"] = _kind_of(series.to_list())
    for name in ("time_unit", "time_zone"):
        if getattr(kind, name, None) is not None:
            description[name] = str(getattr(kind, name))
    if description["kind"] == "Duration":
        ticks = [value // _TICK for value in series.drop_nulls().to_list()]
        description["unit"] = next(name for name, unit in _UNITS.items() if all(tick % unit == 0 for tick in ticks))
    if description["kind"] == "Enum":
        description["categories"] = list(kind.categories)
    if series.implementation.value == "pandas":
        description["pandas"] = str(series.to_native().dtype)
        if description["pandas"] == "category":
            categories = series.to_native().cat
            description["of"] = _kind_of(categories.categories.tolist())
            description |= {
                "categories": [str(name) for name in categories.categories],
                "ordered": bool(categories.ordered),
            }
    return description


def _kind_of(values: Iterable[Any]) -> str:
    """Name the type of objects; other objects, and those of several types, are texts."""
    kinds = {type(value) for value in values if not _is_missing(value)}
    return _OBJECTS.get(kinds.pop(), "String") if len(kinds) == 1 else "String"


def text_columns(description: Mapping[str, Any], frame: Any) -> list[str]:
    """List the text and category columns whose values look like numbers."""
    kinds = {name: dtype["kind"] for name, dtype in description["columns"].items()}
    texts = [name for name, kind in kinds.items() if kind in ("String", "Enum", "Categorical")]
    return [name for name in texts if all(map(_spells_number, frame[name].drop_nulls().unique().to_list()))]


def _spells_number(text: Any) -> bool:
    with suppress(ValueError, TypeError):  # of other texts; of categories that are no texts
        float(text)
        return True
    return False


def restore(description: Mapping[str, Any], columns: Mapping[str, Sequence[str | None]]) -> Any:
    """Restore a native frame of the described library and dtypes from text cells."""
    if description["library"] == "numpy":
        import numpy as np

        dtype = np.dtype(description["dtype"])
        parse, missing = (float, np.nan) if dtype.kind == "f" else (_whole, 0)
        rows = zip(*columns.values(), strict=True)
        return np.array([[parse(cell) if cell else missing for cell in row] for row in rows], dtype)
    dtypes = description["columns"]
    values = {name: _parsed(cells, dtypes.get(name, {"kind": "String"})) for name, cells in columns.items()}
    if description["library"] == "pandas":
        import pandas

        return pandas.DataFrame({name: _pandas_series(column, dtypes.get(name, {})) for name, column in values.items()})
    if "schema" in description:
        return _arrow_table(description["schema"], values)
    import narwhals as nw

    series = [
        nw.new_series(name, column, _narwhals_dtype(dtypes.get(name, {})), backend=description["library"])
        for name, column in values.items()
    ]
    return nw.to_native(nw.concat([one.to_frame() for one in series], how="horizontal"))


_PANDAS = {"Int64": "int64", "Float64": "float64"}


def like(data: Any, result: "Result") -> Any:
    """Return a result as the same kind of frame as `data`, with its dtypes; the result itself if `data` are no frame.

    A column that the frame lacks, or that is empty there, gets the type of its values.
    """
    if not is_frame(data):
        return result
    frame, cells = as_frame(data), result.cells()
    description = describe(frame)
    for name in cells:
        if name not in frame.columns or all(map(_is_missing, frame[name].to_list())):
            kind = _kind_of(result[name])
            description["columns"][name] = {"kind": kind, "pandas": _PANDAS.get(kind, "object")}
            description.pop("schema", None)  # of Arrow: it lacks this type
    return restore(description, cells)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "Boolean": lambda cell: cell == _TRUE,
    "Decimal": Decimal,
    "Date": date.fromisoformat,
    "Datetime": datetime.fromisoformat,
    "Time": time.fromisoformat,
    "Float32": float,
    "Float64": float,
}


def _parsed(cells: Sequence[str | None], dtype: Mapping[str, Any]) -> list[Any]:
    parse = _parser(dtype)
    rare = table_reader.OTHER if parse is not str else None  # it stands for rare values, which have no names
    return [None if not cell or cell == rare else parse(cell) for cell in cells]


def _parser(dtype: Mapping[str, Any]) -> Callable[[str], Any]:
    kind = dtype["kind"]
    if kind == "Duration":
        unit = _UNITS[dtype["unit"]] * _TICK
        return lambda cell: _whole(cell) * unit
    return _PARSERS.get(kind, _whole if kind.startswith(("Int", "UInt")) else str)


def _arrow_table(schema: str, values: Mapping[str, list[Any]]) -> Any:
    import pyarrow

    fields = pyarrow.ipc.read_schema(pyarrow.py_buffer(b64decode(schema)))
    arrow_fields = [fields.field(name) for name in values]
    return pyarrow.table(
        [pyarrow.array(values[field.name], field.type) for field in arrow_fields], schema=pyarrow.schema(arrow_fields)
    )


def _whole(cell: str) -> int:
    return int(cell.removesuffix(".0"))


def _pandas_series(values: list[Any], dtype: Mapping[str, Any]) -> Any:
    import pandas

    native = dtype.get("pandas", "object")
    if native == "category":
        of = {"kind": dtype.get("of", "String")}
        categories, values = _parsed(dtype["categories"], of), _parsed(values, of)
        typed = categories if all(value is None or value in categories for value in values) else None
        return pandas.Series(pandas.Categorical(values, categories=typed, ordered=dtype.get("ordered", False)))
    if None in values and native.startswith(("int", "uint")):
        native = native.replace("uint", "UInt").replace("int", "Int")  # the integers of pandas that may be missing
    if None in values and native == "bool":
        native = "boolean"
    return pandas.Series(values, dtype=native)


def _narwhals_dtype(dtype: Mapping[str, Any]) -> Any:
    import narwhals as nw

    kind = dtype.get("kind", "String")
    if kind == "Enum":
        return nw.Enum(dtype["categories"])
    if kind == "Datetime":
        return nw.Datetime(dtype.get("time_unit", "us"), dtype.get("time_zone"))
    if kind == "Duration":
        return nw.Duration(dtype.get("time_unit", "us"))
    if kind == "Decimal":
        return None  # its precision is found from the values
    return getattr(nw, kind, None)


def load_description(path: Path) -> dict[str, Any] | None:
    """Read a description; None if it is missing or invalid."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    columns = description.get("columns") if isinstance(description, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(kind, dict) and "kind" in kind for kind in columns.values()):
        return None
    if not all(kind["kind"] != "Duration" or kind.get("unit") in _UNITS for kind in columns.values()):
        return None
    return description if description.get("library") in ("pandas", "polars", "pyarrow", "numpy") else None
