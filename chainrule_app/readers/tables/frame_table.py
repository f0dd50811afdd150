"""A table in memory: typed columns of polars, taken block by block from the frame or array of their owner."""

import hashlib
import io
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars

from chainrule.files import write_bytes
from chainrule_app.readers.origin import DataSource, Origin
from chainrule_app.readers.tables.columns import Block, CellColumn, MomentColumn, NumberColumn
from chainrule_app.readers.tables.csv_blocks import CodedColumn, Coding
from chainrule_app.readers.tables.dates import named_zone

UNITS = {"days": 86_400_000_000_000, "hours": 3_600_000_000_000, "minutes": 60_000_000_000, "seconds": 1_000_000_000,
         "milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}  # fmt: skip
_ROWS = 1 << 16  # of a block


@dataclass(frozen=True)
class TypedColumn:
    """One column of a table in memory."""

    name: str
    take: Callable[[slice], polars.Series]  # some of its values; null is missing
    zone: str = ""  # of moments, whose values are then in UTC
    unit: str = ""  # of durations, which are whole numbers of it
    spelt: bool = False  # whether the values are texts that spell numbers, as those of decimals

    def cells(self, part: slice, where: str, *, coding: Coding | None = None, local: bool = False) -> CellColumn:
        """Return some of its cells; moments with a zone in UTC, or in `local` time with the name of the zone."""
        values = self.take(part)
        kind = values.dtype
        if self.spelt or kind.is_decimal():
            return CellColumn(values.cast(polars.String), exact=True)
        if kind.is_numeric():
            return NumberColumn(values)
        if kind == polars.Boolean:
            codes = values.cast(polars.UInt8).fill_null(2).to_numpy()
            return CodedColumn(codes, CellColumn(["False", "True", None], exact=True))
        if kind == polars.Duration:
            return self._durations(values, where)
        if kind == polars.Time:
            return CellColumn(values.dt.to_string("%H:%M:%S%.f"), exact=True)
        if kind == polars.Date:
            return MomentColumn(values)
        if isinstance(kind, polars.Datetime):
            return self._moments(values, local=local)
        if kind in (polars.String, polars.Categorical, polars.Enum, polars.Null):
            return (coding or Coding()).column(self.name, values.cast(polars.String), exact=True)
        raise refused(where, self.name, str(kind).partition("(")[0].lower())

    @property
    def holds_texts(self) -> bool:
        """True if its cells are texts to its owner, whatever they spell."""
        kind = self.take(slice(0, 0)).dtype
        texts = (polars.Boolean, polars.Time, polars.String, polars.Categorical, polars.Enum, polars.Null)
        return kind in texts and not self.spelt

    def with_unit(self, unit: str | None) -> "TypedColumn":
        """Return the column with the unit of its durations: that of training, or the coarsest that divides all."""
        if self.take(slice(0, 0)).dtype != polars.Duration:
            return self
        ticks = self.take(slice(None)).dt.total_nanoseconds()
        return replace(self, unit=unit or next(unit for unit, size in UNITS.items() if (ticks % size == 0).all()))

    def _durations(self, values: polars.Series, where: str) -> CellColumn:
        ticks = values.dt.total_nanoseconds()
        odd = values.filter(ticks % UNITS[self.unit] != 0)
        if len(odd):
            raise ValueError(
                f"{where}, {self.name}: expected whole {self.unit}, as in training, got {odd[0]}: round it"
            )
        return NumberColumn(ticks // UNITS[self.unit])

    def _moments(self, values: polars.Series, *, local: bool) -> CellColumn:
        fine = values.cast(polars.Int64) % 1000 != 0 if values.dtype == polars.Datetime("ns") else None
        if fine is not None and fine.any():  # what a number of microseconds would cut is kept as text
            texts = self._moments(values.set(fine, None), local=False).texts()
            exact = values.dt.to_string("%Y-%m-%d %H:%M:%S%.9f").to_list()
            suffix = "+00:00" if self.zone else ""
            cells = zip(texts, exact, fine.to_list(), strict=True)
            return CellColumn([own + suffix if odd else text for text, own, odd in cells], exact=True)
        values = values.cast(polars.Datetime("us"))
        if not self.zone:
            return MomentColumn(values)
        if not local:
            return MomentColumn(values, "+00:00")
        zone = named_zone(self.zone)
        own = zone or datetime.strptime(self.zone.removeprefix("UTC") or "+00:00", "%z").tzinfo or UTC
        name = "" if zone is None or isinstance(own, timezone) else f"[{self.zone}]"
        moments = (None if moment is None else moment.replace(tzinfo=UTC).astimezone(own) for moment in values)
        return CellColumn([None if moment is None else moment.isoformat(" ") + name for moment in moments], exact=True)


def refused(where: str, name: str, kind: str) -> ValueError:
    """Return the error for a column whose values are no cells of a table."""
    return ValueError(
        f"{where}, {name}: expected numbers, texts, booleans or dates, got {kind}: convert the column, or leave it out"
    )


def polars_column(series: polars.Series) -> TypedColumn:
    """Return a column of polars; its durations have no unit yet."""
    zone = getattr(series.dtype, "time_zone", None) or ""
    if zone:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return TypedColumn(series.name, series.__getitem__, zone)


class FrameTable(DataSource):
    """The names of the columns of a table in memory, and its rows as often as they are asked for, numbered from 0."""

    header = True

    def __init__(self, origin: Origin, columns: Sequence[TypedColumn], length: int):
        if not columns or not length:
            raise ValueError(f"{origin}: expected at least one row, got none")
        self.origin, self.columns, self._length, self._local = origin, list(columns), length, False
        self._coding = Coding()

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @cached_property
    def texts(self) -> set[str]:
        """Names of the columns that hold texts, whatever these spell."""
        return {column.name for column in self.columns if column.holds_texts}

    def read_as(self, *, header: bool | None, local: bool) -> "FrameTable":
        """Return the same table, its columns numbered where other data had no header, its moments in `local` time."""
        columns = self.columns
        if header is False:
            columns = [replace(column, name=f"column{number}") for number, column in enumerate(columns, 1)]
        other = FrameTable(self.origin, columns, self._length)
        other.header, other._local = header is not False, local
        return other

    def blocks(self) -> Generator[Block, None, None]:
        """Yield the rows in blocks."""
        for start in range(0, self._length, _ROWS):
            part = slice(start, min(start + _ROWS, self._length))
            cells = [
                column.cells(part, str(self.origin), coding=self._coding, local=self._local) for column in self.columns
            ]
            yield Block(np.arange(part.start, part.stop), cells)

    def rows(self, *, empty_end: bool = False) -> Generator[tuple[int, list[str | None]], None, None]:
        """Yield the rows with their indices, cells as text; missing ones are None."""
        for block in self.blocks():
            texts = zip(*(column.texts() for column in block.columns), strict=True)
            yield from zip(block.lines.tolist(), map(list, texts), strict=True)

    def save(self, path: Path) -> None:
        """Write the table as Parquet, whole or not at all, so that reading it gives the same cells."""
        whole, columns = slice(None), list[polars.Series]()
        for column in self.columns:
            values = column.take(whole)
            if column.zone and named_zone(column.zone) is not None:
                values = values.dt.replace_time_zone("UTC").dt.convert_time_zone(column.zone)
            elif column.zone or column.unit:
                cells = column.cells(whole, str(self.origin), local=True)
                values = polars.Series(cells.texts(), dtype=polars.String)
                values = values.cast(polars.Int64) if column.unit else values
            columns.append(values.alias(column.name))
        content = io.BytesIO()
        polars.DataFrame(columns).write_parquet(content)
        write_bytes(path, content.getvalue())

    def fingerprint(self) -> dict[str, Any]:
        digest, size = hashlib.sha256(), 0
        for name in self.names:
            digest.update(f"{name}\0".encode())
        for start in range(0, self._length, _ROWS):
            for column in self.columns:
                for part in _content(column.take(slice(start, start + _ROWS))):
                    digest.update(part)
                    size += len(part)
        return {"name": str(self.origin), "bytes": size, "sha256": digest.hexdigest()}


def _content(values: polars.Series) -> tuple[bytes, ...]:
    """Return bytes that are equal for equal values: of numbers, or of texts and their lengths, and what is missing."""
    missing = values.is_null().to_numpy().tobytes()
    kind = values.dtype
    if not (kind.is_numeric() or kind.is_temporal()) or kind.is_decimal() or kind in (polars.Int128, polars.UInt128):
        texts = values.cast(polars.String).fill_null("")
        return missing, texts.str.len_bytes().to_numpy().tobytes(), "".join(texts.to_list()).encode()
    numbers = values if kind.is_numeric() else values.to_physical()
    return missing, numbers.fill_null(0).to_numpy().tobytes()
