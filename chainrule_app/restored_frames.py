"""Frames of pandas, polars and Arrow, and arrays, made of cells, with the types that a description names."""

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import np
from chainrule_app.readers import tables as table_reader

if TYPE_CHECKING:
    from chainrule_app.results import Result

_TEXTS: dict[str, Any] = {"kind": "String"}
_TEXT_KINDS = ("String", "Categorical", "Enum")


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

        schema = unpacked(description["schema"])
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
        fine = size < UNITS["microseconds"]
        ticks = [None if value is None else value * size // (1 if fine else 1000) for value in values]
        return polars.Series(ticks, dtype=polars.Int64).cast(polars.Duration("ns" if fine else "us"))
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


def unpacked(schema: str) -> Any:
    """Return a schema of Arrow that a description holds."""
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
        array = _arrow_array(cells, unpacked(kind["arrow"]).field(0).type, kind)
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


def parser_of(description: Mapping[str, Any] | None, name: str) -> Callable[[str], Any] | None:
    """Return what makes the value, as its owner gave it, of a cell of a described column or label; None of a text."""
    kind = None if description is None else description["columns"].get(name)
    if kind is None or kind["kind"] in _TEXT_KINDS or "unit" in kind:
        return None
    return lambda cell: _parsed([cell], kind)[0]


_BLOCK = 512  # predicted cells whose values are restored together
_CELLS = ("actual", "value", "low", "high", "mean", "median", "mode")  # of a predicted cell
_PLAIN = ("Int", "UInt", "Float")  # kinds whose predicted values are numbers already


def restored_cells(description: Mapping[str, Any], result: "Result") -> "Result":
    """Return predicted cells with the values of each column as its owner gave them: dates, booleans, decimals."""
    if description["library"] == "numpy":
        return result
    places = [result.names.index(name) for name in _CELLS if name in result.names]
    column, shares, bins = (result.names.index(name) for name in ("column", "shares", "bins"))

    def blocks() -> Iterator[Sequence[Any]]:
        source = result.stream()
        while block := list(map(list, islice(source, _BLOCK))):
            for name in dict.fromkeys(row[column] for row in block):
                rows = [row for row in block if row[column] == name]
                back = _restorer(description, name, [row[place] for row in rows for place in places])
                if back is None:
                    continue
                for row in rows:
                    for place in places:
                        row[place] = back(row[place])
                    if row[bins] is not None:
                        row[bins] = row[bins] | {"edges": list(map(back, row[bins]["edges"]))}
                    if row[result.names.index("probability")] is None:  # quantiles; categories keep their names
                        row[shares] = {level: back(value) for level, value in row[shares].items()}
            yield from block

    return result.with_rows(blocks())


def _restorer(description: Mapping[str, Any], name: str, cells: list[Any]) -> Callable[[Any], Any] | None:
    """Return a function from cells of a column to the values of its owner; None where the cells are these."""
    kind = description["columns"].get(name)
    if kind is None or (kind["kind"].startswith(_PLAIN) and "unit" not in kind and kind.get("pandas") != "category"):
        return None
    if kind["kind"] in _TEXT_KINDS and kind.get("pandas") != "category":
        return None
    known: dict[Any, Any] = {"": None, None: None}

    def learn(cells: Sequence[Any]) -> None:
        new = [cell for cell in dict.fromkeys(cells) if cell not in known]
        values = restore(description, {name: list(map(str, new))})
        own = values.iloc[:, 0] if description["library"] == "pandas" else values[name]
        known.update(zip(new, own.to_pylist() if "schema" in description else own.to_list(), strict=True))

    def back(cell: Any) -> Any:
        if cell not in known:
            learn([cell])
        return known[cell]

    learn(cells)
    return back
