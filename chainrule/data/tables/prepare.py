"""Prepare a table on disk: a schema from the rows to train on, then all rows as numbers, in bounded memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.atomic import read_json, write_json
from chainrule.data.source import fingerprint
from chainrule.data.tables.column_facts import ColumnFacts, ColumnKind
from chainrule.data.tables.schema import Rows, TableSchema
from chainrule.data.tables.table_file import TableFile

FORMAT = 1
_BLOCK = 8192  # rows held as Python lists at a time
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
    facts = [ColumnFacts(name, str(path)) for name in file.names]
    count = 0
    for (line, cells), held_out in _shared_out(file.rows(), every, seed):
        if not held_out:
            count += 1
            for column, cell in zip(facts, cells, strict=True):
                column.add(cell, line)
    if count < 2:
        raise ValueError(f"{path}: expected at least two rows to train on, got {count}: give more rows")
    schema = TableSchema.fit(facts, file.header, types or {}, min_count)
    schema.save(directory / "schema.json")
    parts = {
        "train": (held[0] for held in _shared_out(schema.encoded(path), every, seed) if not held[1]),
        "valid": (held[0] for held in _shared_out(schema.encoded(path), every, seed) if held[1])
        if validation is None
        else schema.encoded(validation),
    }
    counts = {part: _write(rows, directory / f"{part}.rows") for part, rows in parts.items()}
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


def _shared_out(rows: Iterable[Any], every: int | None, seed: int) -> Iterator[tuple[Any, bool]]:
    """Each row, and whether it is held out: of `every` rows in succession one; the same ones at each call."""
    rows, random = iter(rows), np.random.default_rng(seed)
    while block := list(islice(rows, every or _BLOCK)):
        chosen = int(random.integers(every)) if every else -1
        for place, row in enumerate(block):
            yield row, place == chosen


def _write(rows: Iterator[tuple[int, list[str], list[float]]], path: Path) -> int:
    count = 0
    with path.open("wb") as file:
        while block := [numbers for _, _, numbers in islice(rows, _BLOCK)]:
            file.write(np.array(block, dtype="<f8").tobytes())
            count += len(block)
    return count
