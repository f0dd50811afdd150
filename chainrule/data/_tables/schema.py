"""The schema of a table: its columns, from training rows alone."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from chainrule.data._atomic import Record
from chainrule.data._tables.cell_column import MISSING, Block, Flags
from chainrule.data._tables.column_facts import COLUMN_KINDS, ColumnFacts, ColumnKind
from chainrule.data._tables.column_schema import ColumnSchema
from chainrule.data._tables.column_types import types_flag
from chainrule.data._tables.table_file import TableFile
from chainrule.heads._column import Column

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PartialRow:
    """A row to be completed.

    Args:
        cells: as they are in the file, of the columns that `TableSchema.partial` names; None where one is unknown.
        numbers: (D,) of the cells of the kept columns; 0 where one is unknown.
        known: (D,) which of these are known.
    """

    cells: list[str | None]
    numbers: list[float]
    known: list[bool]

    def filled(self, drawn: Sequence[str]) -> list[str]:
        """Return the known cells as in the file, and the others from the drawn cells of the kept columns.

        >>> PartialRow(["r7", None, "1.50"], [0.0, 1.5], [False, True]).filled(["red", "1.5"])
        ['r7', 'red', '1.50']
        """
        unknown = compress(drawn, map(not_, self.known))
        return [next(unknown) if cell is None else cell for cell in self.cells]


@dataclass(frozen=True)
class TableSchema(Record):
    """Translation of rows of text into numbers and back.

    Args:
        columns: all of the file, those that are left out too.
        header: whether the file had one.

    >>> schema = TableSchema((ColumnSchema("colour", "categorical", ("blue", "red")),), header=True)
    >>> schema.encode(["red"]), list(schema.decode(np.array([[1.0], [0.0]])))
    ([1.0], [['red'], ['blue']])
    """

    FORMAT: ClassVar[int] = 3
    columns: tuple[ColumnSchema, ...]
    header: bool

    def __post_init__(self) -> None:
        if not self.kept:
            raise ValueError("--types: all columns are left out: keep at least one")

    @classmethod
    def fit(cls, facts: Sequence[ColumnFacts], header: bool, types: Mapping[str, str], min_count: int) -> "TableSchema":
        """Return the schema of training rows.

        Args:
            facts: of each column.
            header: whether the file has one.
            types: column kinds that override the detected ones.
            min_count: see `ColumnSchema.fit`.
        """
        names, overrides = dict.fromkeys(column.name for column in facts), dict[str, ColumnKind]()
        for name, kind in types.items():
            if name not in names:
                raise ValueError(f"--types {name}={kind}: there is no such column (there are: {', '.join(names)})")
            column_kind = next((column_kind for column_kind in COLUMN_KINDS if column_kind == kind), None)
            if column_kind is None:
                raise ValueError(f"--types {name}={kind}: expected one of {', '.join(COLUMN_KINDS)}")
            overrides[name] = column_kind
        columns, refused = [], dict[str, ValueError]()
        for column in facts:
            try:
                columns.append(ColumnSchema.fit(column, overrides.get(column.name) or column.kind(), min_count))
                if column.name not in overrides:
                    column.refuse_identifier(min_count)
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

    def encode(self, cells: Sequence[str]) -> list[float]:
        """Return the numbers of the cells of the kept columns, (D,)."""
        return [column.encode(cell) for column, cell in zip(self.kept, cells, strict=True)]

    def decode(self, rows: Rows) -> Iterator[list[str]]:
        """Yield the cells of rows (N, D)."""
        columns = self.kept
        for row in rows.tolist():
            yield [column.decode(value) for column, value in zip(columns, row, strict=True)]

    def outside(self, rows: Rows) -> Flags:
        """(N,) which rows (N, D) have a number outside the range of their column in training."""
        bounds = [column.bounds or (-np.inf, np.inf) for column in self.kept]
        lowest, highest = np.array(bounds).T
        result: Flags = ((rows < lowest) | (rows > highest)).any(1)  # no missing value, which is NaN, is outside
        return result

    def open(self, path: str | Path, *, complete: bool = True) -> tuple[TableFile, list[int]]:
        """Another file, its header compared with this one's, and the places of the kept columns in its rows.

        Columns of a file with a header are found by name, in whatever order; those left out may be missing, and all
        where the rows need not be `complete`: their place is -1.
        """
        file = TableFile(path, header=self.header)
        names = dict.fromkeys(column.name for column in self.columns)
        if not self.header and len(file.names) != len(names):
            raise ValueError(f"{path}: expected {len(names)} columns without a header, got {len(file.names)}")
        there = {name: index for index, name in enumerate(file.names)}
        missing = [column.name for column in self.kept if complete and column.name not in there]
        unknown = [name for name in file.names if name not in names]
        if missing:
            raise ValueError(
                f"{path}: the column {missing[0]!r} is missing: expected the header {', '.join(names)}, "
                f"got {', '.join(file.names):.200}"
            )
        if unknown:
            raise ValueError(
                f"{path}: the column {unknown[0]!r} was not there in training: remove it (expected: {', '.join(names)})"
            )
        return file, [there.get(column.name, -1) for column in self.kept]

    def encoded(self, path: str | Path) -> Generator[tuple[int, list[str], list[float]], None, None]:
        """Line, cells and numbers of the rows of a file; errors name the line."""
        file, places = self.open(path)
        for line, row in file.rows():
            cells = [row[index] for index in places]
            try:
                yield line, cells, self.encode(cells)
            except ValueError as error:
                raise ValueError(f"{path} line {line}, {error}") from None

    def encode_block(
        self, path: str | Path, block: Block, places: Sequence[int], pool: Executor, *, checked: Flags | None = None
    ) -> Rows:
        """Return the numbers of a block of rows, (N, D).

        Args:
            path: of the file, for errors.
            block: of all columns of the file.
            places: of the kept columns, see `open`.
            pool: encodes columns side by side.
            checked: (N,) which are training rows, from which the schema was made; None where none are.
        """
        rows = np.empty((len(block), len(places)), dtype="<f8")
        cells = [block.columns[index] for index in places]
        encoded = pool.map(lambda column, own: column.encode_cells(own, checked), self.kept, cells)
        refused = []  # row and column of each cell that is
        for number, (values, bad) in enumerate(encoded):
            rows[:, number] = values
            if bad is not None:
                refused.append((bad, number))
        if refused:
            row, number = min(refused)
            try:
                self.kept[number].encode(cells[number].cell(row))
            except ValueError as error:
                raise ValueError(f"{path} line {block.lines[row]}, {error}") from None
            raise AssertionError("a column refused a cell among others and took it alone")
        return rows

    def partial(self, path: str | Path) -> tuple[list[ColumnSchema], Generator[PartialRow, None, None]]:
        """Return the columns of a file once it is completed, and its rows.

        The columns are the kept ones, and those left out that the file has, in the order of training. A cell is unknown
        where it is empty or spells a missing value, or where its column is not in the file.
        """
        file, _ = self.open(path, complete=False)
        columns = [column for column in self.columns if column.kind != "skip" or column.name in file.names]
        return columns, self._partial_rows(file, columns)

    def _partial_rows(self, file: TableFile, columns: Sequence[ColumnSchema]) -> Generator[PartialRow, None, None]:
        there = {name: index for index, name in enumerate(file.names)}
        places = [there.get(column.name, -1) for column in columns]
        for line, row in file.rows(empty_end=True):
            cells, numbers, is_known = list[str | None](), list[float](), list[bool]()
            for column, index in zip(columns, places, strict=True):
                cell = row[index] if index >= 0 else ""
                drawn = column.kind != "skip" and cell in MISSING
                cells.append(None if drawn else cell)
                if column.kind == "skip":
                    continue
                is_known.append(not drawn)
                try:
                    numbers.append(0.0 if drawn else column.encode(cell))
                except ValueError as error:
                    raise ValueError(f"{file.path} line {line}, {error}") from None
            yield PartialRow(cells, numbers, is_known)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"columns": [column.to_json() for column in self.columns]}


_NAMED = 120  # characters of the flags of all columns that are refused


def _together(refused: Mapping[str, ValueError], types: Mapping[str, str]) -> ValueError:
    """Return the error for the first refused column, with the number of others, so that a user can fix all at once.

    Args:
        refused: the refusals by column.
        types: with which the rest of the table can be used; empty where there is no rest.
    """
    first, *others = refused.values()
    if not others:
        return first
    flags = types_flag(types)
    remedy = f": {flags} leaves them out" if types and len(flags) <= _NAMED else ""
    return ValueError(f"{first}; {len(others)} more cannot be used either{remedy}")
