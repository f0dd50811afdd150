"""Prepare a table on disk: a schema from the rows to train on, then all rows as numbers, in bounded memory; batches."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from chainrule.files import Record
from chainrule.heads import Column
from chainrule.option_error import OptionError, UserError, option, raw_text
from chainrule_app.printing import listed
from chainrule_app.readers.delimited import types_option
from chainrule_app.readers.held_out import OneInEvery
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.tables.column_facts import (
    COLUMN_KINDS,
    DISTINCT,
    MOST_CATEGORIES,
    ColumnFacts,
    ColumnKind,
    finer_date_formats,
)
from chainrule_app.readers.tables.column_schema import ColumnSchema
from chainrule_app.readers.tables.columns import Block, Flags
from chainrule_app.readers.tables.dates import DateFormat, find_date_formats
from chainrule_app.readers.tables.frame_table import FrameTable
from chainrule_app.readers.tables.partial_row import PartialRow
from chainrule_app.readers.tables.table_file import KeptBlocks, TableFile, TableSource, open_rows

Rows = npt.NDArray[np.float64]
_ENCODED = 1 << 13  # rows whose cells are Python objects at once


@dataclass(frozen=True)
class TableSchema(Record):
    """Translation of rows of text into numbers and back."""

    FORMAT: ClassVar[int] = 5
    columns: tuple[ColumnSchema, ...]  # all of the file, those that are left out too
    header: bool  # whether the file had one

    def __post_init__(self) -> None:
        if not self.kept:
            raise OptionError("types", "all columns are left out", "keep at least one")

    @classmethod
    def fit(cls, facts: Sequence[ColumnFacts], header: bool, types: Mapping[str, str], min_count: int) -> "TableSchema":
        """Return the schema of training rows."""
        names, overrides = dict.fromkeys(column.name for column in facts), dict[str, ColumnKind]()
        for name, kind in types.items():
            if name not in names:
                raise OptionError("types", f"there is no column {name!r} (columns: {', '.join(names)})")
            column_kind = next((column_kind for column_kind in COLUMN_KINDS if column_kind == kind), None)
            if column_kind is None:
                raise OptionError("types", f"expected one of {', '.join(COLUMN_KINDS)}, got {name}={kind}")
            overrides[name] = column_kind
        columns, refused = [], dict[str, ValueError]()
        texts = f"{option('task', 'classify')} for texts with labels"
        if len(facts) == 1:
            texts = f"{option('task', 'text')} with {option('reading', 'lines')} for lines of text"
        elif len(facts) == 2 and all(column.free_text for column in facts):
            texts = f"{option('task', 'translate')} for pairs of sentences"
        for column in facts:
            try:
                columns.append(ColumnSchema.fit(column, overrides.get(column.name) or column.kind(), min_count))
                if column.name not in overrides:
                    column.refuse_identifier(min_count, texts=texts)
            except ValueError as error:
                refused[column.name] = error
        if refused:
            flags = overrides | dict.fromkeys(refused, "skip")
            raise _together(refused, flags if len(refused) < len(facts) else {})
        return cls(tuple(columns), header)

    @property
    def kept(self) -> list[ColumnSchema]:
        """The columns that are modelled, in the order of x."""
        return [column for column in self.columns if column.kind != "skip"]

    def heads(self) -> list[Column]:
        """Return the columns that are modelled, as `chainrule.models.TableMADE` takes them."""
        return [column.column() for column in self.kept]

    def unseen(self) -> list[int | None]:
        """For each kept column the symbol that training had no cell of, see `ColumnSchema.unseen_symbol`."""
        return [column.unseen_symbol() for column in self.kept]

    def encode(self, cells: Sequence[str | None]) -> list[float]:
        """Return the numbers of the cells of the kept columns, (D,)."""
        return [column.encode(cell) for column, cell in zip(self.kept, cells, strict=True)]

    def decode(self, rows: Rows) -> Iterator[list[str | None]]:
        """Yield the cells of rows (N, D); None where one is missing."""
        columns = self.kept
        for row in rows.tolist():
            yield [column.decode(value) for column, value in zip(columns, row, strict=True)]

    def outside(self, rows: Rows) -> Flags:
        """(N,) which rows (N, D) have a number outside the range of their column in training."""
        bounds = [column.bounds or (-np.inf, np.inf) for column in self.kept]
        lowest, highest = np.array(bounds).T
        result: Flags = ((rows < lowest) | (rows > highest)).any(1)  # no missing value, which is NaN, is outside
        return result

    def open(self, source: TableSource, *, complete: bool = True) -> tuple["TableFile | FrameTable", list[int]]:
        """Open other data; return the table and the places of the kept columns in its rows, see `places_in`."""
        file = open_rows(source, header=self.header)
        return file, self.places_in(file, complete=complete)

    def places_in(self, file: "TableFile | FrameTable", *, complete: bool = True) -> list[int]:
        """Return the places of the kept columns in the rows of a table, -1 for a missing one."""
        names = dict.fromkeys(column.name for column in self.columns)
        if not self.header and len(file.names) != len(names):
            raise ValueError(f"{file.origin}: expected {len(names)} columns without a header, got {len(file.names)}")
        there = {name: index for index, name in enumerate(file.names)}
        missing = [column.name for column in self.kept if complete and column.name not in there]
        unknown = [name for name in file.names if name not in names]
        if missing:
            raise ValueError(
                f"{file.origin}: the column {missing[0]!r} is missing: expected the header {', '.join(names)}, "
                f"got {listed(file.names)}"
            )
        if unknown:
            raise ValueError(
                f"{file.origin}: the column {unknown[0]!r} was not in training: remove it "
                f"(expected: {', '.join(names)})"
            )
        return [there.get(column.name, -1) for column in self.kept]

    def encoded(self, source: TableSource) -> Generator[tuple[int, list[str | None], list[float]], None, None]:
        """Line, cells and numbers of the rows of a table; errors name the line."""
        for block, rows in self.encoded_blocks(source, _ENCODED):
            cells = zip(*(column.texts() for column in block.columns), strict=True)
            yield from zip(block.lines.tolist(), map(list, cells), rows.tolist(), strict=True)

    def encoded_blocks(self, source: TableSource, most: int) -> Generator[tuple[Block, Rows], None, None]:
        """Yield the cells of the kept columns and their numbers (N, D), up to `most` rows at a time."""
        with closing(self.encoders(source, most)) as parts:
            yield from (encode() for encode in parts)

    def encoders(self, source: TableSource, most: int) -> Generator[Callable[[], tuple[Block, Rows]], None, None]:
        """Yield functions that return the blocks of `encoded_blocks`: a block that is not needed costs nothing."""
        file, places = self.open(source)

        def encoded(block: Block) -> tuple[Block, Rows]:
            kept = Block(block.lines, [block.columns[index] for index in places])
            return kept, self.encode_block(file, block, places)

        with closing(file.blocks()) as blocks:
            for block in blocks:
                yield from (partial(encoded, block.part(slice(at, at + most))) for at in range(0, len(block), most))

    def encode_block(self, file: "TableFile | FrameTable", block: Block, places: Sequence[int]) -> Rows:
        """Return the numbers of a block of rows of a table, (N, D)."""
        rows = np.empty((len(block), len(places)), dtype="<f8")
        cells = [block.columns[index] for index in places]
        refused = []  # row and column of each cell that is
        for number, (column, own) in enumerate(zip(self.kept, cells, strict=True)):
            rows[:, number], bad = column.encode_cells(own)
            if bad is not None:
                refused.append((bad, number))
        if refused:
            row, number = min(refused)
            try:
                self.kept[number].encode(cells[number].cell(row))
            except ValueError as error:
                raise UserError(f"{file.origin.at(int(block.lines[row]))}, {raw_text(error)}") from None
            raise AssertionError("a column refused a cell among others and took it alone")
        return rows

    def partial(self, source: TableSource) -> tuple[list[ColumnSchema], Generator[PartialRow, None, None]]:
        """Return the columns of a table to be completed, in the order of training, and its rows, with gaps."""
        file, _ = self.open(source, complete=False)
        columns = [column for column in self.columns if column.kind != "skip" or column.name in file.names]
        return columns, self._partial_rows(file, columns)

    def _partial_rows(
        self, file: "TableFile | FrameTable", columns: Sequence[ColumnSchema]
    ) -> Generator[PartialRow, None, None]:
        there = {name: index for index, name in enumerate(file.names)}
        places = [there.get(column.name, -1) for column in columns]
        for number, (line, row) in enumerate(file.rows(empty_end=True)):
            cells = [row[index] if index >= 0 else None for index in places]
            drawn = [
                column.kind != "skip" and column.is_missing(cell) for column, cell in zip(columns, cells, strict=True)
            ]
            numbers, is_known = list[float](), list[bool]()
            for column, cell, own in zip(columns, cells, drawn, strict=True):
                if column.kind == "skip":
                    continue
                is_known.append(not own)
                try:
                    numbers.append(0.0 if own else column.encode(cell))
                except ValueError as error:
                    raise UserError(f"{file.origin.at(line)}, {raw_text(error)}") from None
            yield PartialRow(cells, drawn, numbers, is_known, line, number)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"columns": [column.to_json() for column in self.columns]}


_NAMED = 120  # characters of the flags of all columns that are refused


def _together(refused: Mapping[str, ValueError], types: Mapping[str, str]) -> ValueError:
    """Return the error for the first refused column, with the number of others, so that a user can fix all at once."""
    first, *others = refused.values()
    if not others:
        return first
    flags = types_option(types)
    remedy = f"{flags} leaves them out" if types and len(flags) <= _NAMED else ""
    return UserError(f"{raw_text(first)}; {len(others)} more cannot be used either", remedy)


_MANIFEST = "table.json"
_COUNTED = 1 << 22  # different cells of all columns that are counted


@dataclass(frozen=True)
class Table:
    """A prepared table."""

    schema: TableSchema  # of its columns
    train: Rows  # (N, D) float64, read from the disk on demand
    valid: Rows  # the same of the rows held out
    manifest: dict[str, Any]  # content of table.json: fingerprints, options and counts


def prepare_table(
    source: TableSource | TableFile,
    directory: str | Path,
    *,
    types: Mapping[str, str] | None = None,
    header: bool | None = None,
    validation: TableSource | None = None,
    validation_fraction: float = 0.1,
    min_count: int = 2,
    seed: int = 0,
    check: Callable[[TableSchema], None] | None = None,
    like: tuple[TableSchema, list[dict[str, Any]]] | None = None,
) -> Table:
    """Read a table for its schema, and again where it is large for its numbers, and write both into a directory.

    Of every 1 / `validation_fraction` rows in succession one, drawn from the seed, is held out. The schema is made of
    the others alone.

    Args:
        source: CSV (plain or gzip), Parquet, JSON Lines, a table in memory, or an open file.
        directory: created if it is missing; `table.json` is the last file written into it.
        types: kinds of columns by name, categorical, integer, real, date or skip, where the one found is not meant.
        header: whether the first row is a header; None looks.
        validation: a validation file; by default rows are held out.
        validation_fraction: of the rows; `seed` draws them.
        min_count: rarer categories become `<other>`; see `ColumnSchema.fit`.
        like: the schema of another table, and the facts `columns` of its manifest; made of the rows by default.
        check: called with the schema before anything is written; raises where it cannot be used.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no table, has too few rows, a column that cannot be modelled, or a cell that does not fit.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     rows = Path(folder) / "rows.csv"
    ...     lines = [f"{'red' if n % 3 else 'blue'},{n / 8}" for n in range(40)]
    ...     _ = rows.write_text("\\n".join(["colour,size", *lines]))
    ...     table = prepare_table(rows, Path(folder) / "table")
    ...     [column.kind for column in table.schema.columns], table.train.shape, table.valid.shape
    (['categorical', 'real'], (36, 2), (4, 2))
    """
    fraction = None if validation is not None else validation_fraction
    kept = KeptBlocks(file := open_rows(source, header=header if like is None else like[0].header))
    schema, columns = like or _fitted_schema(kept, types or {}, min_count, fraction, seed)
    places = schema.places_in(file)
    if check is not None:
        check(schema)
    with StoreWriter(directory, _MANIFEST) as writer:
        schema.save(writer.path("schema.json"))
        train, valid = (writer.growing(f"{part}.rows", "f8", (len(schema.kept),)) for part in ("train", "valid"))
        with closing(kept.blocks(schema.columns)) as blocks:
            for block, held_out in _shared_out(blocks, fraction, seed):
                rows = schema.encode_block(file, block, places)
                train.append(rows[~held_out])
                valid.append(rows[held_out])
        other = None
        if validation is not None:
            other, places = schema.open(validation)
            with closing(other.blocks()) as blocks:
                for block in blocks:
                    valid.append(schema.encode_block(other, block, places))
        if not valid.rows:
            fewest = 1 if fraction is None else math.ceil(1 / fraction)
            raise ValueError(
                f"{(other or file).origin}: expected at least {fewest} rows, one of them to hold out: add rows"
            )
        manifest = {
            "source": file.fingerprint(),
            "validation": None if other is None else other.fingerprint(),
            "rows": {"train": train.rows, "valid": valid.rows},
            "columns": columns,
        }
        writer.finish(manifest)
    return open_table(directory)


def _fitted_schema(
    kept: KeptBlocks,
    types: Mapping[str, str],
    min_count: int,
    fraction: float | None,
    seed: int,
) -> tuple[TableSchema, list[dict[str, Any]]]:
    """Return the schema of the training rows of a table, and what was found of each column."""
    file = kept.file
    with closing(file.blocks()) as blocks:
        first = list(islice(blocks, 1))
        cells = {}
        for block, held_out in _shared_out(first, fraction, seed):
            cells = {name: own.part(~held_out) for name, own in zip(file.names, block.columns, strict=True)}
        formats = find_date_formats(cells, types)
        facts, count = _counted(kept, chain(first, blocks), formats, types, fraction, seed)
    while finer := finer_date_formats(facts, types):  # a later cell is finer, or no date
        formats = {name: dates for name, dates in (formats | finer).items() if dates is not None}
        with closing(file.blocks()) as blocks:
            facts, count = _counted(kept, blocks, formats, types, fraction, seed)
    if count < 2:
        raise ValueError(f"{file.origin}: expected at least two rows with a value to train on, got {count}: add rows")
    schema = TableSchema.fit(facts, file.header, types, min_count)
    kept_names = {column.name for column in schema.kept}
    if all(column.constant for column in facts if column.name in kept_names):
        raise ValueError(f"{file.origin}: every column is constant in the training rows: there is nothing to learn")
    columns = [
        {"name": column.name, "kind": schema.columns[index].kind, "found": column.kind(),
         "missing": column.missing, "distinct": column.counted(), "doubt": column.doubt()}
        for index, column in enumerate(facts)
    ]  # fmt: skip
    return schema, columns


def _counted(
    kept: KeptBlocks,
    blocks: Iterable[Block],
    formats: Mapping[str, DateFormat | None],
    types: Mapping[str, str],
    fraction: float | None,
    seed: int,
) -> tuple[list[ColumnFacts], int]:
    """Count the cells of the columns in the training rows, and these rows."""
    names, where, named = kept.file.names, kept.file.origin, {name for name in types if types[name] == "categorical"}
    distinct, texts = min(DISTINCT, max(_COUNTED // len(names), MOST_CATEGORIES + 1)), kept.file.texts - {*types}
    facts = [
        ColumnFacts(name, where, distinct, formats.get(name), texts=name in texts, named=name in named)
        for name in names
    ]
    count = 0
    kept.begin()
    for block, held_out in _shared_out(blocks, fraction, seed):
        count += int((~held_out).sum())
        columns = [
            column.add(cells, ~held_out, block.lines) for column, cells in zip(facts, block.columns, strict=True)
        ]
        kept.add(Block(block.lines, columns))
    return facts, count


def open_table(directory: str | Path) -> Table:
    """Open a folder written by `prepare_table`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "table")
    schema = TableSchema.load(store.directory / "schema.json")
    with store.checked():
        train, valid = (
            store.array(f"{part}.rows", "f8", (store.manifest["rows"][part], len(schema.kept)))
            for part in ("train", "valid")
        )
    return Table(schema, train, valid, store.manifest)


def _shared_out(blocks: Iterable[Block], fraction: float | None, seed: int) -> Iterator[tuple[Block, Flags]]:
    """Return each block, and which of its rows are held out; the same ones at each call."""
    draw = OneInEvery(fraction, seed)
    return ((block, draw.take(len(block))) for block in blocks)
