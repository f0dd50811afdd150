"""Lines of JSON, records of other kinds and Parquet as blocks of columns."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars

from chainrule_app.readers.csv_records import STRETCH, ByteReader
from chainrule_app.readers.delimited import Row
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.records import SURROGATE, cells_of_records, parquet_errors, records_of_lines
from chainrule_app.readers.tables.columns import Block, CellColumn, NumberColumn
from chainrule_app.readers.tables.csv_blocks import Coding
from chainrule_app.readers.tables.frame_table import TypedColumn, polars_column
from chainrule_app.readers.text import LONGEST_LINE

_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # of surrogates, one character
_CELLS = 1 << 16  # held as Python strings at a time
_CHARACTERS = 1 << 24  # of these, up to the last row


class JsonBlocks:
    """Reader of lines of JSON in blocks; values have the types that polars finds in some megabytes of them."""

    def __init__(self, names: Sequence[str], origin: Origin):
        self._names, self._origin, self._coding = list(names), origin, Coding()
        self._types: dict[str, Any] | None = None

    def read(self, file: ByteReader) -> Iterator[Block]:
        """Yield the records of an open file."""
        lines = done = 0
        while stretch := file.read(STRETCH):
            stretch += file.readline(LONGEST_LINE)
            count = stretch.count(b"\n") + (not stretch.endswith(b"\n"))
            frame = self._frame(stretch)
            if frame is not None and len(frame) == count:
                numbers = np.arange(lines + 1, lines + 1 + count)
            else:
                texts = stretch.split(b"\n")
                numbers = np.array([number for number, text in enumerate(texts, lines + 1) if text.strip()], np.int64)
            if frame is not None and len(frame) == len(numbers):
                yield Block(numbers, [self._column(series) for series in frame.select(self._names).get_columns()])
            else:
                records = records_of_lines(enumerate(texts, lines + 1), self._origin)
                yield from blocks_of_rows(cells_of_records(records, self._origin, self._names, done)[1])
            lines, done = lines + count, done + len(numbers)

    def _frame(self, stretch: bytes) -> polars.DataFrame | None:
        """Return the records of whole lines; None where Python must read them."""
        if SURROGATE.search(stretch) and len(SURROGATE.findall(_PAIR.sub(b"", stretch))):
            return None
        try:
            if self._types is not None:
                frame = polars.read_ndjson(stretch, schema=self._types)
                if _has_no_other_keys(frame, stretch):
                    return frame
        except polars.exceptions.PolarsError:
            pass  # other types than those before
        try:
            frame = polars.read_ndjson(stretch, infer_schema_length=None)
            types = {name: polars.String() if _is_text(kind) else kind for name, kind in frame.schema.items()}
            if not set(types) <= set(self._names):
                return None
            if any(kind.is_nested() for kind in frame.dtypes):
                frame = polars.read_ndjson(stretch, schema=types)
        except polars.exceptions.PolarsError:
            return None
        self._types = types | {name: polars.String() for name in self._names if name not in types}
        missing = [polars.lit(None, polars.String).alias(name) for name in self._names if name not in types]
        return frame.cast(polars.Schema(types)).with_columns(missing)

    def _column(self, series: polars.Series) -> CellColumn:
        if series.dtype.is_numeric():
            return NumberColumn(series)
        if series.dtype == polars.Boolean:
            series = series.replace_strict([True, False], ["true", "false"], return_dtype=polars.String)
        return self._coding.column(series.name, series.str.strip_chars())


def _is_text(kind: Any) -> bool:
    return kind.is_nested() or kind == polars.Null


def _has_no_other_keys(frame: polars.DataFrame, stretch: bytes) -> bool:
    """Return whether records have these keys and no others, by their number of double quotes."""
    missing = int(frame.null_count().sum_horizontal().item())
    texts = [series for series in frame.get_columns() if series.dtype == polars.String]
    expected = len(frame) * frame.width + sum(len(series) - series.null_count() for series in texts)
    quotes = int(np.count_nonzero(np.frombuffer(stretch, np.uint8) == ord('"'))) - stretch.count(b'\\"')
    return quotes == 2 * expected and (not missing or stretch.count(b"null") == missing)


def blocks_of_rows(rows: Iterable[Row]) -> Iterator[Block]:
    """Yield rows of texts in blocks."""
    block, characters, cells = list[Row](), 0, 0
    for line, row in rows:
        block.append((line, list(map(str.strip, row))))
        characters, cells = characters + sum(map(len, row)), cells + len(row)
        if cells >= _CELLS or characters >= _CHARACTERS:
            yield _block(block)
            block, characters, cells = [], 0, 0
    if block:
        yield _block(block)


def _block(rows: Sequence[Row]) -> Block:
    lines, cells = zip(*rows, strict=True)
    return Block(np.array(lines, dtype=np.int64), [CellColumn(column) for column in zip(*cells, strict=True)])


def parquet_columns(frame: polars.DataFrame) -> list[TypedColumn]:
    """Return the columns of a frame of polars, as they are read from Parquet."""
    return [polars_column(series) for series in frame.with_columns(polars.selectors.duration().dt.to_string("iso"))]


def parquet_columns_of(path: str) -> list[TypedColumn]:
    """Return the columns of a Parquet file, without values."""
    with parquet_errors(path):
        return parquet_columns(polars.Schema(polars.read_parquet_schema(path)).to_frame())
