"""Formats of files whose rows are written one after another, each without the others."""

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from chainrule_app.printing import csv_lines, dump_json, plain_value
from chainrule_app.results import Column, Result

if TYPE_CHECKING:
    import polars

ROWS_ALONE = (".csv", ".tsv", ".npy", ".parquet")  # formats that hold rows and nothing else
_RECORDS = (".json", ".jsonl", ".ndjson")
_LINES = (".txt", ".text", ".log", ".out", ".conll", ".conllu", ".iob", ".iob2", ".bio")


@dataclass(frozen=True)
class RowFormat:
    """Format of rows.

    Args:
        kind: JSON Lines, CSV, the main column alone, or Parquet.
        delimiter: of CSV.
        header: whether CSV begins with the names of the columns.
    """

    kind: Literal["json", "csv", "lines", "parquet"]
    delimiter: str = ","
    header: bool = True

    @classmethod
    def of(cls, form: str, name: str, *, json: bool) -> Self | None:
        """Return the format of rows of a form in a file; None where a row is not written without the others."""
        if name.endswith(".npy"):
            return None
        if name.endswith(".parquet"):
            return cls("parquet")
        if json or name.endswith(_RECORDS):
            return cls("json")
        if name.endswith(".tsv") and form != "lines":
            return cls("csv", "\t", header=form != "cells")
        if form in ("csv", "cells") or (form in ("table", "figures", "texts") and name.endswith((".csv", ".tsv"))):
            return cls("csv", header=form != "cells")
        return cls("lines") if form == "lines" else None

    def lines(self, result: Result, *, header: bool = True) -> Iterator[str]:
        """Yield the rows of a result as lines."""
        if self.kind == "json":
            for row in result.stream():
                cells = zip(result.columns, row, strict=True)
                yield dump_json({column.name: plain_value(column.value(cell), cell) for column, cell in cells})
        elif self.kind == "csv":
            yield from csv_lines(_cells(result, header=self.header and header), delimiter=self.delimiter)
        else:
            index = result.names.index(result.main)
            yield from (str(row[index]) for row in result.stream())

    def written(self, result: Result, rows: Iterable[Sequence[Any]], *, header: bool) -> bytes:
        """Return some rows of a result as they stand in a file, or as a frame in Arrow's format for Parquet."""
        part = result.with_rows(rows)
        if self.kind != "parquet":
            return b"".join(map(encoded, self.lines(part, header=header)))
        content = io.BytesIO()
        part.to_polars().write_ipc(content)
        return content.getvalue()


def encoded(line: str) -> bytes:
    """Return the bytes of a line of a file."""
    return f"{line}\n".encode("utf-8", "replace")


_PLAIN = frozenset({int, float, str, type(None)})


def _cells(result: Result, *, header: bool) -> Iterator[list[Any]]:
    """Return the visible cells; a vector has one cell per number."""
    visible = [index for index, column in enumerate(result.columns) if column.shown]
    if header:
        first = next(result.rows(), None)
        yield [
            name
            for index in visible
            for name in _names(result.columns[index], () if first is None else getattr(first[index], "shape", ()))
        ]
    chosen = itemgetter(*visible) if len(visible) > 1 else lambda row: [row[index] for index in visible]
    for row in result.stream():
        cells = chosen(row)
        plain = _PLAIN.issuperset(map(type, cells))  # which a writer of CSV takes as they are
        yield cells if plain else [part for cell in cells for part in _parts(cell)]


def _names(column: Column, shape: tuple[int, ...]) -> list[str]:
    name = column.heading or column.name
    return [f"{name}{number}" for number in range(shape[0])] if len(shape) == 1 else [name]


def _parts(value: Any) -> list[str]:
    if getattr(value, "ndim", 0) == 1:
        return [f"{number:.9g}" for number in value.tolist()]
    if isinstance(value, dict | list):
        return [json.dumps(value, ensure_ascii=False)]
    return ["" if value is None else str(value)]


def checked_out(
    out: Path | None, *suffixes: str, flag: str = "--out", json: bool = False, folder: bool = False
) -> None:
    """Reject an output file, or folder, that cannot be written, before anything is computed."""
    if out is None:
        return
    name = format_of(out)
    if suffixes and not out.name.lower().endswith(suffixes):
        raise ValueError(f"{flag} {out}: expected a name that ends in {' or '.join(suffixes)}")
    ending = Path(name).suffix
    if not suffixes and not name.endswith((*ROWS_ALONE, *_RECORDS, *_LINES)) and not ending[1:].isdecimal() and ending:
        # under any other name it would be opened as what it is not: markup in a row would run in a browser
        raise ValueError(
            f"{flag} {out}: this format is not written: choose .csv, .tsv, .jsonl, .txt, .parquet or .npy, any of them "
            "also with .gz"
        )
    if out.is_dir() and not folder:
        raise ValueError(f"{flag} {out}: this is a directory; name a file in it")
    if not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"{flag} {out}: no directory {out.parent}: create it first")
    if json and name.endswith(ROWS_ALONE):
        raise ValueError(f"{flag} {out}: this format cannot hold JSON: leave out --json, or name the file .jsonl")


def packed(file: IO[bytes], out: Path) -> Any:
    """Return the file to write into: `file`, or one that compresses into it, without a name and a time."""
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0) if out.name.lower().endswith(".gz") else nullcontext(file)


def format_of(out: Path) -> str:
    """Return the name whose end tells the format: x.csv of X.csv.gz."""
    return out.name.lower().removesuffix(".gz")


def write_parquet(frames: "Iterable[polars.DataFrame]", file: IO[bytes]) -> None:
    """Write frames, one at least, to temporary files, and these to one file when the types of all rows are known."""
    import polars

    with TemporaryDirectory(prefix="chainrule-") as folder:
        parts: list[Path] = []
        for frame in frames:
            parts.append(Path(folder) / f"{len(parts)}.arrow")
            frame.write_ipc(parts[-1])
        polars.concat(map(polars.scan_ipc, parts), how="vertical_relaxed").sink_parquet(file)
