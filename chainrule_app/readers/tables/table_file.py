"""A table on disk, CSV, Parquet or JSON Lines, row by row."""

import csv
import io
import shutil
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars

from chainrule.files import copy_file, naming, write_bytes
from chainrule.option_error import UserError, option
from chainrule_app.printing import listed
from chainrule_app.readers.delimited import MOST_COLUMNS, DelimitedFile, Row
from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.origin import ByteSource, origin_of
from chainrule_app.readers.records import parquet_errors, parquet_frames, record_rows
from chainrule_app.readers.sources import holds_records
from chainrule_app.readers.tables.blocks import Block, regular_blocks
from chainrule_app.readers.tables.cell import may_have_decimal_commas, with_point
from chainrule_app.readers.tables.frame_table import FrameTable, TypedColumn, polars_column
from chainrule_app.readers.tables.layout import find_layout, is_header, is_units
from chainrule_app.readers.text import LONGEST_LINE, check_file

_WIDEST = 1000  # columns: of more, too few rows are read together for a column at a time to be faster
_CELLS = 1 << 16  # held as Python strings at a time
_CHARACTERS = 1 << 24  # of these, up to the last row


class TableFile:
    """The names of the columns of a table, and its rows as often as they are asked for.

    `is_header` tells whether the first row is a header, and `find_layout` what stands before it. A row of units under
    the header is left out. Cells lose the white space around them; empty lines are passed over, and so are rows of
    empty cells at the end.
    """

    def __init__(self, source: str | Path | ByteSource, *, header: bool | None = None, local: bool = False):
        self._local = local  # whether moments of Parquet keep the time of their zone
        self.origin, self.texts = origin_of(source), set[str]()
        self._source = source if isinstance(source, ByteSource) else check_file(source)
        self._paths = list(source.paths) if isinstance(source, FilesInTurn) else [str(source)]
        self._parquet = self._paths[0].lower().endswith(".parquet")
        self._records = not self._parquet and holds_records(self._paths[0])
        if self._parquet or self._records:
            self.header, self.units, self._before = True, False, 0
            if self._parquet:
                columns = _parquet_columns_of(self._paths[0])
                self.texts = {column.name for column in columns if column.holds_texts}
            self.names = record_rows(source)[0] if self._records else [column.name for column in columns]
            if len(self.names) > MOST_COLUMNS:
                raise ValueError(
                    f"{source}: expected at most {MOST_COLUMNS:,} columns, got {len(self.names):,}: "
                    "keep those that matter"
                )
            return
        self._file = DelimitedFile(source)
        layout = find_layout(self._file)
        self._delimiter, self._before = layout.delimiter, layout.before
        if not layout.rows:
            with closing(self._lines(self._before)) as lines:
                first = next(lines, None)  # raises where it cannot be read
            assert first is None
            raise ValueError(f"{source}: expected rows, got only empty lines")
        cells = layout.cells
        self.header = is_header(cells) if header is None else header
        self.units = self.header and len(cells) > 1 and is_units(cells[1:])
        named_rows = int(self.header) + int(self.units)
        self._header_end = layout.rows[named_rows - 1][0] if named_rows else self._before  # its last line
        numbered = [f"column{number}" for number in range(1, len(cells[0]) + 1)]
        self.names = [cell or name for cell, name in zip(cells[0], numbered, strict=True)] if self.header else numbered
        if len(set(self.names)) < len(self.names):
            twice = Counter(self.names).most_common(1)[0][0]
            raise UserError(
                f"{source}: the header names {twice!r} twice", f"rename one, or pass {option('header', 'no')}"
            )

    def left_out(self) -> str:
        """Describe the lines before the rows that are neither header nor data; empty without such lines."""
        notes = []
        if self._before:
            notes.append(f"{'line 1' if self._before == 1 else f'lines 1 to {self._before}'}, before the table")
        if self.units:
            notes.append(f"line {self._header_end}, which gives units")
        return f"{self.origin}: {' and '.join(notes)}: left out" if notes else ""

    def rows(self, *, empty_end: bool = False) -> Generator[tuple[int, list[str | None]], None, None]:
        """Yield the rows with the number of the line where each ends (for Parquet of the row), cells as text."""
        if self._parquet:
            for block in self.blocks() if not empty_end else self._parquet_blocks():
                texts = zip(*(column.texts() for column in block.columns), strict=True)
                yield from zip(block.lines.tolist(), map(list, texts), strict=True)
            return
        with closing(self._parsed_rows() or self._lines(self._header_end)) as rows:
            empty: list[int] = []  # lines of rows of empty cells, which at the end are left out
            for line, cells in self._checked(rows):
                if not any(cells) and not empty_end:
                    empty.append(line)
                    continue
                for before in empty:
                    yield before, [""] * len(cells)
                empty.clear()
                yield line, [*cells]

    def blocks(self) -> Generator[Block, None, None]:
        """Yield the same rows in blocks, of any size."""
        empty: list[Block] = []  # rows of empty cells, which at the end are left out
        for block in self._all_blocks():
            filled = block.filled()
            if filled:
                yield from empty
                empty.clear()
                yield block.part(slice(filled))
            if filled < len(block):
                empty.append(block.part(slice(filled, len(block))))

    def _all_blocks(self) -> Iterator[Block]:
        if self._parquet:
            yield from self._parquet_blocks()
            return
        if parsed := self._parsed_rows():
            yield from self._listed(parsed)
            return
        line: int | None = self._header_end
        if 2 <= len(self.names) <= _WIDEST:
            with self._file.open() as file:
                header = [file.readline(LONGEST_LINE) for _ in range(self._header_end)]
                if not any(b"\r" in text.removesuffix(b"\n").removesuffix(b"\r") for text in header):
                    line = yield from regular_blocks(file, self._delimiter, len(self.names), self._header_end)
        if line is not None:
            with closing(self._lines(line)) as rows:
                yield from self._listed(self._checked(rows))

    def _checked(self, rows: Iterator[Row]) -> Iterator[Row]:
        for line, cells in rows:
            if len(cells) != len(self.names):
                remedy = (
                    "put a cell that contains the separator into double quotes"
                    if len(cells) > len(self.names)
                    else "add the separators of the missing cells, which may be empty"
                )
                raise ValueError(
                    f"{self.origin.at(line)}: expected {len(self.names)} cells, got {len(cells)}: {remedy}"
                )
            yield line, cells

    def _listed(self, rows: Iterator[Row]) -> Iterator[Block]:
        most, block, characters = max(_CELLS // len(self.names), 1), list[Row](), 0
        for row in rows:
            block.append(row)
            characters += sum(map(len, row[1]))
            if len(block) == most or characters >= _CHARACTERS:
                yield Block.of_rows(block)
                block, characters = [], 0
        if block:
            yield Block.of_rows(block)

    def _lines(self, before: int) -> Generator[Row, None, None]:
        """Yield the rows of the file behind its first `before` lines."""
        with closing(self._file.quoted_rows(self._delimiter, before=before)) as rows:
            if may_have_decimal_commas(self._delimiter):
                yield from ((line, list(map(with_point, cells))) for line, cells in rows)
            else:
                yield from rows

    def _parsed_rows(self) -> Generator[Row, None, None] | None:
        """Return the rows of a file whose format tells the cells; None for text that must be cut into cells."""
        if self._records:
            rows = record_rows(self._source)[1]
            return ((line, list(map(str.strip, cells))) for line, cells in rows)
        return None

    def _parquet_blocks(self) -> Iterator[Block]:
        done = 0
        for index, path in enumerate(self._paths):
            if isinstance(self._source, FilesInTurn):
                self._source.note(index, done)
            if (names := [column.name for column in _parquet_columns_of(path)]) != self.names:
                raise ValueError(f"{path}: expected the columns {listed(self.names)}, got {listed(names)}")
            for frame in parquet_frames(path):
                cells = [column.cells(slice(None), path, local=self._local) for column in parquet_columns(frame)]
                yield Block(np.arange(done + 1, done + 1 + len(frame)), cells)
                done += len(frame)


TableSource: TypeAlias = str | Path | ByteSource | FrameTable


def open_rows(source: TableSource, *, header: bool | None = None, local: bool = False) -> TableFile | FrameTable:
    """Open a table: a file, several, or one in memory; `header` is of files, and of the data that a run was trained on.

    Typed moments with a zone are in UTC, or in `local` time.
    """
    if isinstance(source, FrameTable):
        return source.read_as(header=header, local=local)
    return TableFile(source, header=header, local=local)


def save_table(source: str | Path | ByteSource, folder: Path, name: str) -> None:
    """Copy the file of a table into a folder, or several as one."""
    if not isinstance(source, ByteSource):
        copy_file(Path(source), folder / (name + "".join(Path(source).suffixes[-2:])))
        return
    paths = source.paths if isinstance(source, FilesInTurn) else [str(source)]
    if paths[0].lower().endswith(".parquet"):
        content = io.BytesIO()
        polars.concat(map(polars.read_parquet, paths), how="vertical_relaxed").write_parquet(content)
        write_bytes(folder / f"{name}.parquet", content.getvalue())
        return
    path = folder / f"{name}.csv"
    with naming(path), path.open("wb") as file:
        if holds_records(paths[0]):
            names, rows = record_rows(source)
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            csv.writer(text, lineterminator="\n").writerows(chain([names], (cells for _, cells in rows)))
            text.detach()
        else:
            shutil.copyfileobj(source.open(), file)


def _parquet_columns_of(path: str) -> list[TypedColumn]:
    with parquet_errors(path):
        return parquet_columns(polars.Schema(polars.read_parquet_schema(path)).to_frame())


def parquet_columns(frame: polars.DataFrame) -> list[TypedColumn]:
    """Return the columns of a frame of polars, as they are read from Parquet."""
    return [polars_column(series) for series in frame.with_columns(polars.selectors.duration().dt.to_string("iso"))]
