"""Rows of CSV as blocks of columns, which polars cuts."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars

from chainrule_app.readers.csv_records import ByteReader, Records, read_records
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tables.cell import DECIMAL_COMMA, GROUPING, may_have_decimal_commas
from chainrule_app.readers.tables.coded_columns import Coding
from chainrule_app.readers.tables.columns import Block, CellColumn, Places


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
