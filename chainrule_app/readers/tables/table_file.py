"""A table on disk, CSV, Parquet or JSON Lines, row by row."""

import csv
import io
import shutil
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars

from chainrule.files import copy_file, naming, write_bytes
from chainrule.option_error import UserError, option
from chainrule_app.printing import listed
from chainrule_app.readers.csv_records import read_records
from chainrule_app.readers.delimited import MOST_COLUMNS, Beginning, DelimitedFile
from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.origin import ByteSource, origin_of
from chainrule_app.readers.records import LINES, cells_of_records, parquet_frames, record_rows, records_of_lines
from chainrule_app.readers.sources import EXCEL, check_file, fingerprint, holds_records, plain_name
from chainrule_app.readers.tables.columns import Block, ValueColumn
from chainrule_app.readers.tables.csv_blocks import Coding, CsvBlocks
from chainrule_app.readers.tables.excel import excel_frame
from chainrule_app.readers.tables.frame_table import FrameTable, TypedColumn
from chainrule_app.readers.tables.layout import find_layout, is_header, is_units
from chainrule_app.readers.tables.record_blocks import (
    JsonBlocks,
    blocks_of_rows,
    parquet_columns,
    parquet_columns_of,
)

if TYPE_CHECKING:
    from chainrule_app.readers.tables.column_schema import ColumnSchema

KEPT = 1 << 27  # bytes of blocks that are kept between two passes


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
        self.header, self.units, self._before, self._header_end = True, False, 0, 0
        self._coding, self._sheets = Coding(), dict[str, polars.DataFrame]()
        self._fingerprint: dict[str, Any] | None = None
        self._csv: CsvBlocks | None = None
        self._json: JsonBlocks | None = None
        self._beginning: Beginning | None = None
        self._typed = self._paths[0].lower().endswith((".parquet", EXCEL))
        if self._typed:
            columns = self._columns_of(self._paths[0])
            self.texts = {column.name for column in columns if column.holds_texts}
            self.names = [column.name for column in columns]
        elif holds_records(self._paths[0]):
            self._open_records(source)
        else:
            self._open_csv(source, header)
        if len(self.names) > MOST_COLUMNS:
            raise ValueError(
                f"{source}: expected at most {MOST_COLUMNS:,} columns, got {len(self.names):,}: keep those that matter"
            )

    def _open_records(self, source: str | Path | ByteSource) -> None:
        if not plain_name(self._paths[0]).endswith(LINES):
            self.names = record_rows(source)[0]
            return
        self._file = DelimitedFile(source)
        self._beginning = self._file.beginning()
        records = records_of_lines(enumerate(self._beginning.content.split(b"\n"), 1), self.origin)
        self.names = cells_of_records(records, self.origin)[0]
        self._json = JsonBlocks(self.names, self.origin)

    def _open_csv(self, source: str | Path | ByteSource, header: bool | None) -> None:
        self._file = DelimitedFile(source)
        self._beginning = self._file.beginning()
        layout = find_layout(self._beginning)
        self._before = layout.before
        if not layout.rows:
            with self._file.open_behind(self._beginning) as file:
                for records in read_records(file, layout.delimiter, self.origin, before=self._before):
                    if records.error is not None:
                        raise records.error
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
        self._csv = CsvBlocks(layout.delimiter, len(self.names), self.origin)

    def left_out(self) -> str:
        """Describe the lines before the rows that are neither header nor data; empty without such lines."""
        notes = []
        if self._before:
            notes.append(f"{'line 1' if self._before == 1 else f'lines 1 to {self._before}'}, before the table")
        if self.units:
            notes.append(f"line {self._header_end}, which gives units")
        return f"{self.origin}: {' and '.join(notes)}: left out" if notes else ""

    def fingerprint(self) -> dict[str, Any]:
        """Return `name`, `bytes` and `sha256` of the content, which a whole pass over the rows digests by the way."""
        return self._fingerprint or fingerprint(self._source)

    def rows(self, *, empty_end: bool = False) -> Generator[tuple[int, list[str | None]], None, None]:
        """Yield the rows with the number of the line where each ends (for Parquet of the row), cells as text."""
        with closing(self.blocks(empty_end=empty_end)) as blocks:
            for block in blocks:
                texts = zip(*(column.texts() for column in block.columns), strict=True)
                yield from zip(block.lines.tolist(), map(list, texts), strict=True)

    def blocks(self, *, empty_end: bool = False) -> Generator[Block, None, None]:
        """Yield the same rows in blocks, of any size; `empty_end` keeps rows of empty cells at the end."""
        empty: list[Block] = []
        with closing(self._all_blocks()) as blocks:
            for block in blocks:
                filled = len(block) if empty_end else block.filled()
                if filled:
                    yield from empty
                    empty.clear()
                    yield block.part(slice(filled))
                if filled < len(block):
                    empty.append(block.part(slice(filled, len(block))))

    def _all_blocks(self) -> Generator[Block, None, None]:
        if self._typed:
            yield from self._typed_blocks()
            return
        if self._beginning is None:
            yield from blocks_of_rows(record_rows(self._source)[1])
            return
        with self._file.open_behind(self._beginning) as file:
            if self._csv is not None:
                yield from self._csv.read(file, self._header_end)
            elif self._json is not None:
                yield from self._json.read(file)
            if self._beginning.plain and self._fingerprint is None:
                digest = file.digest.hexdigest()
                self._fingerprint = {"name": Path(self._paths[0]).name, "bytes": file.size, "sha256": digest}

    def _frames_of(self, path: str) -> Iterator[polars.DataFrame]:
        if not path.lower().endswith(EXCEL):
            return parquet_frames(path)
        if path not in self._sheets:
            self._sheets[path] = excel_frame(path)
        return iter([self._sheets[path]])

    def _columns_of(self, path: str) -> list[TypedColumn]:
        if path.lower().endswith(EXCEL):
            return parquet_columns(next(self._frames_of(path)).clear())
        return parquet_columns_of(path)

    def _typed_blocks(self) -> Generator[Block, None, None]:
        done = 0
        for index, path in enumerate(self._paths):
            if isinstance(self._source, FilesInTurn):
                self._source.note(index, done)
            if (names := [column.name for column in self._columns_of(path)]) != self.names:
                raise ValueError(f"{path}: expected the columns {listed(self.names)}, got {listed(names)}")
            for frame in self._frames_of(path):
                columns = parquet_columns(frame)
                cells = [column.cells(slice(None), path, coding=self._coding, local=self._local) for column in columns]
                yield Block(np.arange(done + 1, done + 1 + len(frame)), cells)
                done += len(frame)


TableSource: TypeAlias = str | Path | ByteSource | FrameTable


def open_rows(
    source: TableSource | TableFile, *, header: bool | None = None, local: bool = False
) -> TableFile | FrameTable:
    """Open a table: a file, several, or one in memory; `header` is of files, and of the data that a run was trained on.

    Typed moments with a zone are in UTC, or in `local` time.
    """
    if isinstance(source, FrameTable):
        return source.read_as(header=header, local=local)
    if isinstance(source, TableFile):
        return source
    return TableFile(source, header=header, local=local)


class KeptBlocks:
    """Blocks of a file that were read to fit a schema, which are kept for encoding where they need little memory."""

    def __init__(self, file: TableFile | FrameTable):
        self.file = file
        self._blocks: list[Block] | None = None
        self._size = 0

    def begin(self) -> None:
        """Begin to read the file."""
        self._blocks, self._size = None if isinstance(self.file, FrameTable) else [], 0

    def add(self, block: Block) -> None:
        """Keep a block, or none where they are too large."""
        self._size += block.size
        if self._blocks is not None and self._size <= KEPT:
            self._blocks.append(block)
        else:
            self._blocks = None

    def blocks(self, schemas: "Sequence[ColumnSchema]") -> Generator[Block, None, None]:
        """Yield the blocks of the whole file; it is read again where they were not kept with what schemas need."""
        own = self._blocks
        columns = list(zip(schemas, *(block.columns for block in own), strict=True)) if own else []
        lost = any(
            column.kind == "categorical" and any(isinstance(cells, ValueColumn) for cells in every)
            for column, *every in columns
        )
        yield from own if own and not lost else self.file.blocks()


def save_table(source: str | Path | ByteSource, folder: Path, name: str) -> None:
    """Copy the file of a table into a folder, or several as one."""
    if not isinstance(source, ByteSource):
        copy_file(Path(source), folder / (name + "".join(Path(source).suffixes[-2:])))
        return
    paths = source.paths if isinstance(source, FilesInTurn) else [str(source)]
    if paths[0].lower().endswith((".parquet", EXCEL)):
        read = excel_frame if paths[0].lower().endswith(EXCEL) else polars.read_parquet
        content = io.BytesIO()
        polars.concat(map(read, paths), how="vertical_relaxed").write_parquet(content)
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
