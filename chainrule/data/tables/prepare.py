"""Prepare a table on disk: a schema from the rows to train on, then all rows as numbers, in bounded memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.atomic import read_json, write_json
from chainrule.data.source import fingerprint
from chainrule.data.tables.cell_column import Block, CellColumn, Flags, Lines
from chainrule.data.tables.column_facts import DISTINCT, MOST_CATEGORIES, ColumnFacts, ColumnKind
from chainrule.data.tables.schema import Rows, TableSchema
from chainrule.data.tables.table_file import TableFile

FORMAT = 1
_COUNTED = 1 << 22  # different cells of all columns that are counted
_FILES = ("table.json", "train.rows", "valid.rows", "schema.json")


@dataclass(frozen=True)
class Table:
    """A prepared table.

    Attributes:
        schema: of its columns.
        train: (N, D) float64, read from the disk as it is asked for.
        valid: the same of the rows held out.
        manifest: what table.json holds: fingerprints, options and counts.
    """

    schema: TableSchema
    train: Rows
    valid: Rows
    manifest: dict[str, Any]


def prepare_table(
    path: str | Path,
    directory: str | Path,
    *,
    types: Mapping[str, ColumnKind] | None = None,
    header: bool | None = None,
    validation: str | Path | None = None,
    validation_fraction: float = 0.1,
    min_count: int = 2,
    seed: int = 0,
    check: Callable[[TableSchema], None] | None = None,
) -> Table:
    """Read a table twice, once for its schema and once for its numbers, and write both into a directory.

    Of every 1 / `validation_fraction` rows in succession one, drawn from the seed, is held out. The schema is made of
    the others alone.

    Args:
        path: CSV (plain or gzip) or Parquet.
        directory: made if it is missing; `table.json` is the last file written into it.
        types: kinds of columns by name, categorical, integer, real or skip, where the one found is not meant.
        header: whether the first row is a header; None looks.
        validation: a file to hold out in place of rows of the first.
        validation_fraction: of the rows.
        min_count: rarer categories become `<other>`; see `ColumnSchema.fit`.
        seed: of the rows held out.
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
    if not 0 < validation_fraction <= 0.5:
        raise ValueError(f"validation_fraction: expected above 0 and at most 0.5, got {validation_fraction}")
    if min_count < 1:
        raise ValueError(f"min_count: expected at least 1, got {min_count}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (directory / name).unlink(missing_ok=True)
    file = TableFile(path, header=header)
    every = None if validation is not None else round(1 / validation_fraction)
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
    schema = TableSchema.fit(facts, file.header, types or {}, min_count)
    if check is not None:
        check(schema)
    schema.save(directory / "schema.json")
    counts = {"train": 0, "valid": 0}
    with (
        (directory / "train.rows").open("wb") as train,
        (directory / "valid.rows").open("wb") as valid,
        ThreadPoolExecutor() as pool,
    ):
        file, places = schema.open(path)
        for block, held_out in _shared_out(_ahead(file.blocks()), every, seed):
            rows = schema.encode_block(path, block, places, pool, checked=~held_out)
            for part, target, chosen in (("train", train, ~held_out), ("valid", valid, held_out)):
                target.write(rows[chosen].tobytes())
                counts[part] += int(chosen.sum())
        if validation is not None:
            file, places = schema.open(validation)
            for block in _ahead(file.blocks()):
                valid.write(schema.encode_block(validation, block, places, pool).tobytes())
                counts["valid"] += len(block)
    if not counts["valid"]:
        raise ValueError(f"{validation or path}: expected at least {every or 1} rows, to hold one out: give more rows")
    manifest = {
        "format": FORMAT,
        "source": fingerprint(path),
        "validation": None if validation is None else fingerprint(validation),
        "rows": counts,
        "columns": [
            {"name": column.name, "kind": schema.columns[place].kind, "found": column.kind(), "missing": column.missing,
             "distinct": column.counted()}
            for place, column in enumerate(facts)
        ],
    }  # fmt: skip
    write_json(directory / "table.json", manifest)
    return open_table(directory)


def open_table(directory: str | Path) -> Table:
    """Open what `prepare_table` wrote.

    Raises:
        FileNotFoundError: there is none, or its preparation was cut short.
        ValueError: a file in it was changed or cut.
    """
    directory = Path(directory)
    if not (directory / "table.json").is_file():
        raise FileNotFoundError(f"{directory}: no prepared table here (table.json is missing): prepare it again")
    manifest = read_json(directory / "table.json")
    schema = TableSchema.load(directory / "schema.json")
    width = len(schema.kept)
    parts = {}
    for part in ("train", "valid"):
        path = directory / f"{part}.rows"
        try:
            count = manifest["rows"][part]
            if type(count) is not int or path.stat().st_size != 8 * width * count:
                raise ValueError(f"expected {count} rows of {width} numbers")
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{path}: damaged ({error}): prepare the table again") from None
        parts[part] = np.memmap(path, dtype="<f8", mode="r", shape=(count, width))
    return Table(schema, parts["train"], parts["valid"], manifest)


def _shared_out(blocks: Iterable[Block], every: int | None, seed: int) -> Iterator[tuple[Block, Flags]]:
    """Each block, and which of its rows are held out: of `every` rows in succession one; the same ones at each call."""
    random, row = np.random.default_rng(seed), 0
    chosen, first = np.zeros(0, dtype=np.int64), 0  # of the groups from `first` on, the row of each that is held out
    for block in blocks:
        if every is None:
            yield block, np.zeros(len(block), dtype=np.bool_)
            continue
        group, place = np.divmod(np.arange(row, row + len(block)), every)
        row += len(block)
        chosen, first = chosen[int(group[0]) - first :], int(group[0])
        chosen = np.concatenate([chosen, random.integers(every, size=int(group[-1]) + 1 - first - len(chosen))])
        yield block, chosen[group - first] == place


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, the next one being read while one is worked on."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = reader.submit(next, blocks, None)
            yield block
