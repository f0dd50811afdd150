"""TODO"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Self

import numpy as np
import polars

from chainrule_app.readers.csv_records import STRETCH, ByteReader, Records, read_records
from chainrule_app.readers.delimited import Row
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.records import SURROGATE, cells_of_records, parquet_errors, records_of_lines
from chainrule_app.readers.tables.cell import DECIMAL_COMMA, GROUPING, may_have_decimal_commas
from chainrule_app.readers.tables.columns import (
    Block,
    CellColumn,
    Flags,
    Floats,
    MomentColumn,
    NumberCells,
    NumberColumn,
    Places,
)
from chainrule_app.readers.tables.frame_table import TypedColumn, polars_column
from chainrule_app.readers.text import LONGEST_LINE

_FEWEST_ROWS = 1000  # that tell whether a column has few different cells


_MOST_DIFFERENT, _SHARE = 2000, 0.25  # of these rows


_MOST_CODES = 1 << 14  # of a column


class CodedColumn(CellColumn):
    """N cells of a column of few different ones: a code for each, and the cells that the codes stand for."""

    def __init__(self, codes: Places, different: CellColumn):
        self._codes, self._different = codes, different
        self.missing_texts = different.missing_texts

    def __len__(self) -> int:
        return len(self._codes)

    def cell(self, index: int) -> str | None:
        return self._different.cell(int(self._codes[index]))

    def texts(self) -> list[str | None]:
        cells = self._different.texts()
        return [cells[code] for code in self._codes.tolist()]

    def part(self, chosen: Flags | slice) -> Self:
        other = copy(self)
        other._codes = self._codes[chosen]
        return other

    def counts(self, among: Collection[str] | None = None, most: int | None = None) -> list[tuple[str | None, int]]:
        cells, size = self._different.texts(), len(self._codes)
        counts, first = np.bincount(self._codes, minlength=len(cells)), np.full(len(cells), size)
        first[self._codes[::-1]] = np.arange(size - 1, -1, -1)
        found = dict[str | None, int]()
        for code in np.argsort(first)[: np.count_nonzero(counts)].tolist():
            found[cells[code]] = found.get(cells[code], 0) + int(counts[code])  # 1,5 and 1.5 are one cell
        if among is not None:
            return [(cell, count) for cell, count in found.items() if cell is None or cell in among]
        gaps = {None, *self.missing_texts}
        return [
            (cell, count) for place, (cell, count) in enumerate(found.items()) if cell in gaps or place < (most or size)
        ]

    def nulls(self) -> Flags:
        return np.asarray(self._different.nulls()[self._codes])

    def empty(self) -> Flags:
        return np.asarray(self._different.empty()[self._codes])

    def numbers(self, *, fraction: bool = True) -> NumberCells:
        return self._of_different(fraction, lambda own: own.numbers(fraction=fraction)).at(self._codes)

    def moments(self, pattern: str, suffix: str) -> MomentColumn | None:
        moments = self._different.moments(pattern, suffix)
        return None if moments is None else moments.at(self._codes)

    def missing(self) -> Flags:
        return np.asarray(self._different.missing()[self._codes])

    def codes(self, codes: Mapping[str, int], other: float) -> Floats:
        return np.asarray(self._different.codes(codes, other)[self._codes])

    def by_cell(self, rule: Hashable, change: Callable[[CellColumn], CellColumn]) -> CellColumn:
        return CodedColumn(self._codes, self._of_different(rule, change))

    def as_numbers(self, numbers: NumberCells) -> CellColumn:
        return self

    @property
    def size(self) -> int:
        return self._codes.nbytes

    def _of_different(self, rule: Hashable, make: Callable[[CellColumn], Any]) -> Any:
        """Apply a named rule to the different cells, which blocks share, once."""
        if rule not in self._different.known:
            self._different.known[rule] = make(self._different)
        return self._different.known[rule]


class Coding:
    """Categories of the columns that have few different texts, by their keys, for codes that stay the same."""

    def __init__(self) -> None:
        self._categories = dict[Hashable, polars.Categories | None]()  # None where a column has many
        self._different = dict[Hashable, CellColumn]()
        self._alive = dict[Hashable, polars.Series]()

    def types(self) -> dict[Hashable, polars.DataType]:
        """Return the types by which polars reads columns into codes."""
        return {key: polars.Categorical(own) for key, own in self._categories.items() if own is not None}

    def column(
        self,
        key: Hashable,
        cells: polars.Series,
        clean: Callable[[polars.Series], polars.Series] = lambda own: own,
        clean_different: Callable[[polars.Series], polars.Series] | None = None,
        *,
        exact: bool = False,
    ) -> CellColumn:
        """Return texts, or codes read by one of the `types`, as a column of texts that were cleaned one by one.

        `clean` may be for these cells alone; then `clean_different` is for those of all calls.
        """
        if key not in self._categories and len(cells) >= _FEWEST_ROWS:
            few = cells.n_unique() <= min(_MOST_DIFFERENT, int(len(cells) * _SHARE))
            self._categories[key] = polars.Categories.random("chainrule", polars.UInt32) if few else None
            return CellColumn(clean(cells), exact=exact)
        categories = self._categories.get(key)
        if categories is None:
            return CellColumn(clean(cells), exact=exact)
        coded = cells if cells.dtype != polars.String else cells.cast(polars.Categorical(categories))
        self._alive[key] = coded[:0]  # polars forgets categories that no series has
        names, codes = categories.to_series().alias(""), coded.to_physical()
        if key not in self._different or len(self._different[key]) != len(names) + 1:
            gap = polars.Series([None if exact else ""], dtype=polars.String)  # for which polars has no code
            self._different[key] = CellColumn((clean_different or clean)(polars.concat([names, gap])), exact=exact)
        if len(names) > _MOST_CODES:
            self._categories[key] = None
        codes = codes.fill_null(len(names)) if codes.null_count() else codes
        small = np.uint16 if len(names) <= np.iinfo(np.uint16).max else np.uint32
        return CodedColumn(codes.to_numpy().astype(small), self._different[key])


class CsvBlocks:
    """Reader of the rows of a CSV file in blocks, which remembers between passes which columns have few cells."""

    def __init__(self, delimiter: str, width: int, origin: Origin):
        self._delimiter, self._width, self._origin = delimiter, width, origin
        self._coding = Coding()

    def read(self, file: ByteReader, before: int) -> Iterator[Block]:
        """Yield the rows of an open file behind its first lines."""
        for records in read_records(file, self._delimiter, self._origin, before=before):
            records = records.of_width(self._width, self._origin)
            columns = self._columns(records) if len(records) else []
            if columns is None:  # a row has more cells, and another one fewer
                records = records.regular(self._width, self._origin)
                columns = self._columns(records) if len(records) else []
                assert columns is not None
            if columns:
                block = Block(records.lines, columns)
                yield block if self._width > 1 else block.only(~columns[0].empty())
            if records.error is not None:
                raise records.error

    def _columns(self, records: Records) -> list[CellColumn] | None:
        """Return the columns; None where rows have different numbers of cells."""
        types: dict[Any, polars.DataType] = {index: polars.String() for index in range(self._width)}
        if not records.mark:  # which another block may hold as a sign of its own
            types |= self._coding.types()
        try:
            frame = polars.read_csv(
                records.content.tobytes(),
                has_header=False,
                schema={str(index): kind for index, kind in types.items()},
                separator=self._delimiter,
                quote_char='"' if records.quoted else None,
                empty_string_is_null=False,
            )
        except polars.exceptions.ComputeError:
            return None
        assert len(frame) == len(records)
        if records.mark:
            frame = frame.with_columns(polars.all().str.replace_all(records.mark, '"', literal=True))
        clean = partial(self._cleaned, strip=_has_blank_ends(records))
        different = partial(self._cleaned, strip=True)  # those of all blocks
        columns = enumerate(frame.get_columns())
        return [self._coding.column(index, series, clean, different) for index, series in columns]

    def _cleaned(self, series: polars.Series, *, strip: bool) -> polars.Series:
        if strip:
            series = series.str.strip_chars()
        return _with_points(series) if may_have_decimal_commas(self._delimiter) else series


def _has_blank_ends(records: Records) -> bool:
    """Return whether some cell may begin or end with white space."""
    content = records.content
    if int(content.max()) > 127:
        return True
    blank = content == 32
    if records.delimiter != 9:
        blank |= content == 9
    if not blank.any():
        return False
    places: Places = np.flatnonzero(blank)
    borders = np.zeros(256, dtype=np.bool_)
    borders[[records.delimiter, *b'"\n\r']] = True
    return bool(places[0] == 0 or borders[content[places - 1]].any() or borders[content[places + 1]].any())


def _with_points(series: polars.Series) -> polars.Series:
    """Apply `with_point` to each cell."""
    has_comma = series.str.contains(f"^{DECIMAL_COMMA.pattern}$")
    if not has_comma.any():
        return series
    return series.str.replace_all(f"[{GROUPING}]", "").str.replace(",", ".", literal=True).zip_with(has_comma, series)


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
