"""Prepare a table on disk: a schema from the rows to train on, then all rows as numbers, in bounded memory; batches."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chainrule.data._batches import Batch, Batches, Shuffled, in_order
from chainrule.data._split import Flags, OneInEvery, check_fraction
from chainrule.data._store import Store, StoreWriter
from chainrule.data._tables.cell_column import Block, CellColumn, Lines
from chainrule.data._tables.column_facts import DISTINCT, MOST_CATEGORIES, ColumnFacts
from chainrule.data._tables.schema import Rows, TableSchema
from chainrule.data._tables.table_file import TableFile
from chainrule.data._text import fingerprint

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
    path: str | Path,
    directory: str | Path,
    *,
    types: Mapping[str, str] | None = None,
    header: bool | None = None,
    validation: str | Path | None = None,
    validation_fraction: float = 0.1,
    min_count: int = 2,
    seed: int = 0,
    check: Callable[[TableSchema], None] | None = None,
    like: Table | None = None,
) -> Table:
    """Read a table twice, once for its schema and once for its numbers, and write both into a directory.

    Of every 1 / `validation_fraction` rows in succession one, drawn from the seed, is held out. The schema is made of
    the others alone.

    Args:
        path: CSV (plain or gzip) or Parquet.
        directory: created if it is missing; `table.json` is the last file written into it.
        types: kinds of columns by name, categorical, integer, real or skip, where the one found is not meant.
        header: whether the first row is a header; None looks.
        validation: a validation file; by default rows of the first are held out.
        validation_fraction: of the rows.
        min_count: rarer categories become `<other>`; see `ColumnSchema.fit`.
        seed: of the rows held out.
        like: another table, whose schema is taken; one is made of the rows by default.
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
    check_fraction("validation_fraction", validation_fraction)
    if min_count < 1:
        raise ValueError(f"min_count: expected at least 1, got {min_count}")
    every = None if validation is not None else round(1 / validation_fraction)
    if like is None:
        schema, columns = _fitted_schema(path, header, types or {}, min_count, every, seed)
    else:
        schema, columns = like.schema, like.manifest["columns"]
    if check is not None:
        check(schema)
    with StoreWriter(directory, _MANIFEST) as writer, ThreadPoolExecutor() as pool:
        schema.save(writer.path("schema.json"))
        train, valid = (writer.growing(f"{part}.rows", "f8", (len(schema.kept),)) for part in ("train", "valid"))
        file, places = schema.open(path)
        for block, held_out in _shared_out(_ahead(file.blocks()), every, seed):
            rows = schema.encode_block(path, block, places, pool, checked=~held_out if like is None else None)
            train.append(rows[~held_out])
            valid.append(rows[held_out])
        if validation is not None:
            file, places = schema.open(validation)
            for block in _ahead(file.blocks()):
                valid.append(schema.encode_block(validation, block, places, pool))
        if not valid.rows:
            raise ValueError(
                f"{validation or path}: expected at least {every or 1} rows, to hold one out: give more rows"
            )
        manifest = {
            "source": fingerprint(path),
            "validation": None if validation is None else fingerprint(validation),
            "rows": {"train": train.rows, "valid": valid.rows},
            "columns": columns,
        }
        writer.finish(manifest)
    return open_table(directory)


def _fitted_schema(
    path: str | Path, header: bool | None, types: Mapping[str, str], min_count: int, every: int | None, seed: int
) -> tuple[TableSchema, list[dict[str, Any]]]:
    """Return the schema of the training rows of a file, and what was found of each column."""
    file = TableFile(path, header=header)
    distinct = min(DISTINCT, max(_COUNTED // len(file.names), MOST_CATEGORIES + 1))
    facts = [ColumnFacts(name, str(path), distinct) for name in file.names]
    count = 0
    with ThreadPoolExecutor() as pool:  # polars leaves Python's lock to others while it works
        for block, held_out in _shared_out(_ahead(file.blocks()), every, seed):
            lines = block.lines[~held_out]
            count += len(lines)

            def add(column: ColumnFacts, cells: CellColumn, lines: Lines = lines, out: Flags = held_out) -> None:
                column.add(cells.part(~out) if out.any() else cells, lines)

            list(pool.map(add, facts, block.columns))
    if count < 2:
        raise ValueError(f"{path}: expected at least two rows to train on, got {count}: give more rows")
    schema = TableSchema.fit(facts, file.header, types, min_count)
    kept_names = {column.name for column in schema.kept}
    if all(column.constant for column in facts if column.name in kept_names):
        raise ValueError(f"{path}: every column is constant in the training rows: there is nothing to learn")
    columns = [
        {"name": column.name, "kind": schema.columns[index].kind, "found": column.kind(),
         "missing": column.missing, "distinct": column.counted(), "doubt": column.doubt()}
        for index, column in enumerate(facts)
    ]  # fmt: skip
    return schema, columns


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


def _shared_out(blocks: Iterable[Block], every: int | None, seed: int) -> Iterator[tuple[Block, Flags]]:
    """Return each block, and which of its rows are held out; the same ones at each call."""
    draw = OneInEvery(every, seed)
    return ((block, draw.take(len(block))) for block in blocks)


def _ahead(blocks: Generator[Block, None, None]) -> Iterator[Block]:
    """Yield the same blocks, the next one being read while one is worked on."""
    with closing(blocks), ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, blocks, None)
        try:
            while (block := following.result()) is not None:
                following = reader.submit(next, blocks, None)
                yield block
        finally:
            del following  # its exception refers to this frame: together they would wait for the garbage collector


def table_batches(rows: Rows, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)) -> Batches:
    """Rows (N, D) in the order of `Shuffled`; see there for the other arguments."""
    order = Shuffled(len(rows), batch_size, seed, shard)
    return Batches(order, lambda _, chosen: _batch(rows[order.own(chosen)]))


def table_evaluation(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Every row once, in order."""
    return (_batch(rows[chosen]) for chosen in in_order(len(rows), batch_size))


def _batch(rows: Rows) -> Batch:
    # Lengths say that each row is a whole sequence: it is scored in one pass.
    return Batch(torch.from_numpy(np.array(rows)), lengths=torch.full((len(rows),), rows.shape[1]))
