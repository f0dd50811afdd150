"""Records, one by one: JSON Lines, Parquet, and JSON of a list of objects, or what `to_json` of pandas writes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.origin import ByteSource, Origin
from chainrule_app.readers.sources import plain_name
from chainrule_app.readers.tagged.spans import annotated_texts
from chainrule_app.readers.text import open_bytes, raw_lines

LINES = (".jsonl", ".ndjson")
LOOKED_AT = 1000  # records whose keys become columns
_MOST_JSON = 1 << 26  # bytes of JSON that is no JSON Lines: it is held in memory
_FIRST_RECORD = 1 << 20  # bytes
_FEWEST_ROWS, _MOST_ROWS = 64, 1 << 16  # of a Parquet file that are read together
_FRAME_BYTES = 1 << 26  # of these
_EQUAL_CELLS, _CELLS_OF_A_BYTE = 1 << 24, 64  # that a Parquet file may announce: columns that repeat are packed well
_LISTED = ("data", "rows", "records", "items", "examples")  # keys of an object whose list of objects are the records
_MANY = 10  # equal objects in an object, which are columns or rows whatever they are called
_INDEX = re.compile(r"-?\d+|\d{4}-\d\d-\d\d.*")  # of a row, as pandas writes numbers and dates
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Record = Mapping[str, Any]


def is_json_of_records(path: str | Path) -> bool:
    """Return whether a .json file holds records."""
    try:
        return next(records(str(path)), None) is not None
    except (_NoRecordsError, OSError, ImportError):
        return False
    except ValueError:  # of records, as the reader will say
        return True


def first_record(path: str | Path) -> Record:
    """Return the first record of a file; an empty one where there is none, or it cannot be read."""
    try:
        return next((record for _, record in records(str(path))), {})
    except (OSError, ValueError, ImportError):
        return {}


class _NoRecordsError(ValueError):
    """JSON of another form."""


def records(path: str) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file with their lines, or their numbers where a record has no line of its own, from 1."""
    name = plain_name(path)
    if name.endswith(".parquet"):
        frames = parquet_frames(path)
        yield from enumerate(chain.from_iterable(frame.iter_rows(named=True) for frame in frames), 1)
        return
    if not name.endswith(LINES) and (listed := _listed_records(path)) is not None:
        for number, entry in enumerate(listed, 1):
            _refuse_surrogates(entry, f"{path}: record {number}")
            yield number, entry
        return
    with open_bytes(path) as file:
        yield from records_of_lines(raw_lines(file, path), Origin(path))


def records_of_lines(lines: Iterable[tuple[int, bytes]], origin: Origin) -> Iterator[tuple[int, Record]]:
    """Yield the records of numbered lines of JSON, empty ones left out."""
    for number, line in lines:
        if not line.strip():
            continue
        record: Any = None
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError(f"{origin.at(number)}: expected one JSON object per line, got {line[:60]!r}")
        if SURROGATE.search(line):
            _refuse_surrogates(record, origin.at(number))
        yield number, record


def _refuse_surrogates(record: Record, where: str) -> None:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        sign = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(
            f"{where}: contains {sign}, half of a surrogate pair, which is not a character: correct the text"
        ) from None


def _listed_records(path: str) -> Sequence[Record] | None:
    """Return the records of a .json file that is one value; None where it is JSON Lines.

    Raises:
        _NoRecordsError: the value holds no records.
    """
    with open_bytes(path) as file:
        raw = file.read(_MOST_JSON + 1)
    beginning = raw[:_FIRST_RECORD].lstrip()
    if beginning[:1] not in (b"{", b"["):
        raise _NoRecordsError(f"{path}: expected JSON records, got something else")
    if len(raw) > _MOST_JSON and not (beginning[:1] == b"[" and beginning[1:].lstrip()[:1] == b"{"):
        raise _NoRecordsError(f"{path}: expected at most {_MOST_JSON >> 20} MiB of JSON, got more")
    if len(raw) > _MOST_JSON:
        raise ValueError(
            f"{path}: expected at most {_MOST_JSON >> 20} MiB of JSON, got more: write JSON Lines, one object per line"
        )
    try:
        found = _records_in(json.loads(raw))
    except RecursionError:
        found = None
    except ValueError:
        first, _, rest = beginning.partition(b"\n")
        if _is_object(first) and (not rest.strip() or _is_object(rest.lstrip().partition(b"\n")[0])):
            return None
        raise _NoRecordsError(f"{path}: expected JSON, got something else") from None
    if found is None:
        raise _NoRecordsError(f"{path}: expected a list of objects, or the output of pandas.DataFrame.to_json")
    return found


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _records_in(value: Any) -> Sequence[Record] | None:
    """Return the records in a value of JSON: a list of objects or texts with spans, or a frame as pandas writes it."""
    if (texts := annotated_texts(value)) is not None:
        return texts
    if isinstance(value, list):
        return value if value and all(isinstance(record, dict) for record in value) else None
    if not isinstance(value, dict):
        return None
    columns, data = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        rows = [dict(zip(map(str, columns), row, strict=False)) for row in data]  # orient="split"
        return _with_index(rows, value.get("index"))
    for name in _LISTED:
        if isinstance(value.get(name), list) and (found := _records_in(value[name])) is not None:
            if "schema" not in value:
                return found
            labels = [record.get("index") for record in found]  # orient="table"
            return _with_index([{key: record[key] for key in record if key != "index"} for record in found], labels)
    parts = list(value.values())
    if not parts or not all(isinstance(part, dict) and part.keys() == parts[0].keys() and part for part in parts):
        return None
    if any(isinstance(cell, dict | list) for part in parts for cell in part.values()):
        return None
    if all(map(_INDEX.fullmatch, parts[0])) or (not all(map(_INDEX.fullmatch, value)) and len(parts[0]) >= _MANY):
        rows = [{name: part[row] for name, part in value.items()} for row in parts[0]]  # orient="columns", the default
        return _with_index(rows, list(parts[0]))
    return _with_index(parts, list(value)) if all(map(_INDEX.fullmatch, value)) or len(parts) >= _MANY else None


def _with_index(rows: list[dict[str, Any]], labels: Any) -> Sequence[Record] | None:
    """Return rows with their labels under "index", unless these only count the rows."""
    if not isinstance(labels, list) or [str(label) for label in labels] == list(map(str, range(len(rows)))):
        return rows or None
    return [{"index": label, **row} for label, row in zip(labels, rows, strict=False)]


@contextmanager
def parquet_errors(path: str | Path) -> Iterator[None]:
    """Report what polars raises as one line about the file."""
    import polars

    try:
        yield
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"{path}: expected a Parquet file ({first:.120}): restore it from a copy") from None


def parquet_frames(path: str | Path, *columns: Any) -> Iterator[Any]:
    """Yield the rows of a Parquet file in frames of polars, more rows in each the smaller they are.

    `columns` are expressions of columns to read in another way.
    """
    import polars

    done, rows = 0, _FEWEST_ROWS
    with parquet_errors(path):
        table = polars.scan_parquet(path).with_columns(columns)
        count, size = int(table.select(polars.len()).collect().item()), Path(path).stat().st_size
        if count * len(table.collect_schema()) > max(_EQUAL_CELLS, _CELLS_OF_A_BYTE * size):
            raise ValueError(f"{path}: claims {count:,} rows in {size:,} bytes, which is implausible: use a subset")
        while len(frame := table.slice(done, rows).collect()):
            yield frame
            done += len(frame)
            rows = max(1, min(2 * rows, _MOST_ROWS, rows * _FRAME_BYTES // max(1, int(frame.estimated_size()))))


def numbered_records(files: FilesInTurn) -> Iterator[tuple[int, Record]]:
    """Yield the records of files, numbered through from 1."""
    number = 0
    for index, path in enumerate(files.paths):
        files.note(index, number)
        for _, record in records(path):
            number += 1
            yield number, record


def _lines_of_records(source: str | Path | ByteSource) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file, or of several in turn, with their lines."""
    if not isinstance(source, FilesInTurn):
        yield from records(str(source))
        return
    last = 0
    for index, path in enumerate(source.paths):
        before = last
        source.note(index, before)
        for line, record in records(path):
            last = before + line
            yield last, record


def record_rows(source: str | Path | ByteSource) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the keys of the first records, which name the columns, and the cells of all records with their lines."""
    return cells_of_records(_lines_of_records(source), Origin(str(source)))


def cells_of_records(
    every: Iterator[tuple[int, Record]], origin: Origin, names: Sequence[str] = (), done: int = 0
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the names of the columns, known or told by the first records, and the cells of records after so many."""
    first = [] if names else list(islice(every, LOOKED_AT))
    if not first and not names:
        raise ValueError(f"{origin}: expected records, got an empty file")
    columns = list(names or dict.fromkeys(name for _, record in first for name in record))
    known = set(columns)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, (line, record) in enumerate(chain(first, every), done + 1):
            if not record.keys() <= known:
                unknown = min(record.keys() - known)
                raise ValueError(
                    f"{origin}: record {number} has the key {unknown!r:.60}, which none of the first {LOOKED_AT:,} has"
                )
            yield line, [_cell(record.get(name)) for name in columns]

    return columns, rows()


class Nested(str):
    """The JSON of a list or an object in a record."""


def _cell(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return value
    if value is None:
        return ""
    if kind is bool:
        return str(value).lower()
    return Nested(json.dumps(value, ensure_ascii=False)) if kind is dict or kind is list else str(value)
