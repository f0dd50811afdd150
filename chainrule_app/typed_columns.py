"""Columns of pandas, Arrow, NumPy and of Python objects as typed columns of polars, piece by piece."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import polars

from chainrule_app.heavy import np
from chainrule_app.readers.tables.frame_table import FrameTable, TypedColumn, polars_column, refused

if TYPE_CHECKING:
    from chainrule_app.readers.origin import Origin

_LARGEST = 1 << 63  # of integers of 64 bits


def name_of(name: Any) -> str:
    """Return the name of a column as text; of several levels, joined by blanks."""
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def frame_table(frame: Any, origin: "Origin", description: Mapping[str, Any] | None = None) -> FrameTable:
    """Return a frame of pandas, polars or Arrow as a table.

    Args:
        frame: as `chainrule_app.frames.as_frame` returns it.
        origin: names the argument in errors.
        description: of the frame that a run was trained on, whose durations have the same units here.
    """
    library = type(frame).__module__.partition(".")[0]
    names = list(map(name_of, frame.column_names if library == "pyarrow" else frame.columns))
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{origin}: expected columns of different names, got {name!r} twice: rename one")
    make = {"polars": _of_polars, "pyarrow": _of_arrow}.get(library, _of_pandas)
    series = (frame.iloc[:, index] if make is _of_pandas else frame[index] if make is _of_arrow else frame[name]
              for index, name in enumerate(names))  # fmt: skip
    columns = [make(own, name, str(origin)) for own, name in zip(series, names, strict=True)]
    known = {} if description is None else description["columns"]
    columns = [column.with_unit(known.get(column.name, {}).get("unit")) for column in columns]
    return FrameTable(origin, columns, len(frame))


def array_table(array: Any, origin: "Origin") -> FrameTable:
    """Return an array (N,) or (N, D) of numbers as a table."""
    rows = array[:, None] if array.ndim == 1 else array
    rows = rows.astype({"b1": "i8", "f2": "f4"}.get(array.dtype.str[1:], array.dtype.newbyteorder("=")))
    names = ["value"] if array.ndim == 1 else [f"column{number}" for number in range(1, rows.shape[1] + 1)]

    def column(index: int, name: str) -> TypedColumn:
        return TypedColumn(name, lambda part: polars.Series(np.ascontiguousarray(rows[part, index])))

    return FrameTable(origin, [column(index, name) for index, name in enumerate(names)], len(rows))


def records_table(
    records: Sequence[Mapping[Any, Any]], origin: "Origin", description: Mapping[str, Any] | None = None
) -> FrameTable:
    """Return dictionaries with the same keys as a table."""
    for index, record in enumerate(records):
        if record.keys() != records[0].keys():
            raise ValueError(f"{origin.at(index)}: expected the keys {', '.join(map(str, records[0]))}")
    known = {} if description is None else description["columns"]

    def column(key: Any) -> TypedColumn:
        values = [record[key] for record in records]
        return objects_column(values, str(key), str(origin)).with_unit(known.get(str(key), {}).get("unit"))

    return FrameTable(origin, list(map(column, records[0])), len(records))


def _of_polars(series: polars.Series, name: str, where: str) -> TypedColumn:
    if series.dtype.is_nested() or series.dtype in (polars.Binary, polars.Object):
        raise refused(where, name, str(series.dtype).partition("(")[0].lower())
    return polars_column(series)


def _of_arrow(column: Any, name: str, where: str) -> TypedColumn:
    import pyarrow
    from pyarrow import compute, types

    kind = column.type
    packed = types.is_dictionary(kind) or types.is_run_end_encoded(kind)
    inner = kind.value_type if packed else kind
    decimal, zone = types.is_decimal(inner), getattr(inner, "tz", None) or ""
    plain = {"halffloat": pyarrow.float32(), "date64[ms]": pyarrow.date32()}.get(str(inner), inner)
    plain = pyarrow.string() if decimal else pyarrow.timestamp(inner.unit) if zone else plain
    texts = str(plain) in ("string", "large_string", "string_view")
    if types.is_interval(plain) or not (texts or types.is_primitive(plain) or types.is_null(plain)):
        raise refused(where, name, str(inner).partition("<")[0])

    def take(part: slice) -> polars.Series:
        values = column[part]
        values = compute.run_end_decode(values) if types.is_run_end_encoded(kind) else values
        return polars.Series(polars.from_arrow((values.cast(inner) if packed else values).cast(plain)))

    return TypedColumn(name, take, zone, spelt=decimal)


def _of_pandas(series: Any, name: str, where: str) -> TypedColumn:
    kind, text = series.dtype, str(series.dtype)
    if text == "object":
        return objects_column(series, name, where)
    if text.startswith("Sparse"):
        return _of_pandas(series.sparse.to_dense(), name, where)
    if hasattr(kind, "pyarrow_dtype"):
        import pyarrow

        values = series.array.__arrow_array__()
        return _of_arrow(
            values if isinstance(values, pyarrow.ChunkedArray) else pyarrow.chunked_array([values]), name, where
        )
    take: Callable[[Any], polars.Series]
    zone = ""
    if isinstance(kind, np.dtype) and kind.kind in "biuf":
        plain = np.dtype(np.float32) if kind == np.float16 else kind.newbyteorder("=")
        take = partial(_numbers, plain)
    elif isinstance(kind, np.dtype) and kind.kind in "Mm":
        take = _moments
    elif isinstance(kind, np.dtype) and kind.kind == "c":
        take = _spelt
    elif text == "category":
        names = polars.Series(list(map(str, series.cat.categories)), dtype=polars.String)
        series, take = series.cat.codes, lambda codes: names.gather(_nullable(codes.to_numpy(), codes.to_numpy() < 0))
    elif text.startswith("datetime64"):
        zone, take = str(kind.tz), lambda moments: _moments(moments.dt.tz_convert("UTC").dt.tz_localize(None))
    elif text.startswith("period"):
        take = lambda periods: _moments(periods.dt.to_timestamp())  # noqa: E731  as the others
    elif text.lower().startswith(("int64", "int32", "int16", "int8", "uint", "float", "boolean")):
        take = partial(_masked, np.dtype("bool" if text == "boolean" else text.lower()))
    elif isinstance(kind.type, type) and issubclass(kind.type, str):
        take = _texts
    else:
        raise refused(where, name, text)
    return TypedColumn(name, lambda part: take(series.iloc[part]), zone)


def _numbers(plain: Any, series: Any) -> polars.Series:
    return polars.Series(series.to_numpy().astype(plain))


def _masked(plain: Any, series: Any) -> polars.Series:
    return _nullable(series.to_numpy(dtype=plain, na_value=plain.type(0)), series.isna().to_numpy())


def _nullable(values: Any, missing: Any) -> polars.Series:
    return polars.Series(values).set(polars.Series(missing), None)


def _texts(series: Any) -> polars.Series:
    return polars.Series(series.to_numpy(dtype=object, na_value=None).tolist(), dtype=polars.String)


def _spelt(series: Any) -> polars.Series:
    return polars.Series([None if isnan(abs(value)) else str(value) for value in series], dtype=polars.String)


def _moments(series: Any) -> polars.Series:
    """Return moments or durations in microseconds; in nanoseconds, where these are their unit."""
    values = series.to_numpy()
    unit = "ns" if "ns" in str(values.dtype) else "us"
    return polars.Series(values.astype(f"{values.dtype.kind}8[{unit}]"))


def objects_column(values: Any, name: str, where: str) -> TypedColumn:
    """Return a sequence of Python objects as a column: numbers of any types, texts, dates and others of one kind."""
    kind = kind_of_objects(values)
    if kind not in _OBJECTS:
        raise refused(where, name, kind)
    make, dtype = _OBJECTS[kind]
    zones = {str(value.tzinfo or "") for value in values if not _is_missing(value)} if kind == "datetime" else {""}
    if len(zones) > 1 and "" in zones:
        raise refused(where, name, "times with and without a zone")
    own = values.iloc if hasattr(values, "iloc") else values

    def take(part: slice) -> polars.Series:
        return polars.Series([None if _is_missing(value) else make(value) for value in own[part]], dtype=dtype)

    return TypedColumn(name, take, min(zones, default="") if len(zones) < 2 else "UTC", spelt=kind in _SPELT)


def kind_of_objects(values: Iterable[Any]) -> str:
    """Return the kind of some Python objects, missing ones left out; their types where they are of several kinds."""
    examples = {type(value): value for value in values if not _is_missing(value)}
    if not examples:
        return "nothing"
    kinds = set(map(_kind_of, examples))
    if len(kinds) > 1 and kinds <= {"int", "float"}:
        return "float"
    if len(kinds) > 1 and kinds <= {"int", "float", "decimal"}:
        return "float" if "float" in kinds else "decimal"
    if len(kinds) > 1:
        return " and ".join(sorted(kind.__name__ for kind in examples))
    (kind,) = kinds
    large = kind == "int" and any(abs(int(value)) >= _LARGEST for value in values if not _is_missing(value))
    return "large int" if large else kind


def _kind_of(kind: type) -> str:
    bases: tuple[tuple[Any, str], ...] = (
        ((bool, np.bool_), "bool"), ((int, np.integer), "int"), ((float, np.floating), "float"), (str, "text"),
        (Decimal, "decimal"), (datetime, "datetime"), (date, "date"), (timedelta, "timedelta"), (time, "time"),
    )  # fmt: skip
    return next((name for base, name in bases if issubclass(kind, base)), kind.__name__)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and isnan(value))


def _moment(value: Any) -> datetime:
    moment: datetime = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment


def _duration(value: Any) -> timedelta:
    return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value


def _same(value: Any) -> Any:
    return value


_OBJECTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "nothing": (_same, polars.Null),
    "bool": (bool, polars.Boolean),
    "int": (int, polars.Int64),
    "large int": (str, polars.String),
    "float": (float, polars.Float64),
    "decimal": (str, polars.String),
    "text": (str, polars.String),
    "datetime": (_moment, polars.Datetime("us")),
    "date": (_same, polars.Date),
    "timedelta": (_duration, polars.Duration("us")),
    "time": (_same, polars.Time),
}
_SPELT = ("large int", "decimal")
