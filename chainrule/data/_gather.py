"""Data that come from standard input, several files, compressed files or records, written to one plain file."""

import csv
import glob
import gzip
import json
import shlex
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal

from chainrule.data._text import CHUNK_BYTES, STDIN, no_such_file, open_bytes, raw_lines, read_chunks

Kind = Literal["text", "rows"]
RECORDS = (".jsonl", ".ndjson", ".parquet")
_PACKED = (".gz", ".zst")
_MOST_RATIO, _ALWAYS = 200, 1 << 28  # a file unpacks to so many times its size, or to so many bytes
_WINDOW = 1 << 27  # bytes that a .zst file may refer back to, which are held in memory
_LOOKED_AT = 1000  # records whose keys become columns
_SLICE = 1 << 14  # rows of a Parquet file that are held in memory
_MAGIC = "*?["


def paths_of(source: str) -> list[str]:
    """The files that a source names: one, those that a pattern matches in order of their names, or several in quotes.

    Raises:
        FileNotFoundError: a pattern matches no file.

    >>> paths_of("a.txt"), paths_of("-")
    (['a.txt'], ['-'])
    """
    if source == STDIN or Path(source).exists():
        return [source]
    if any(sign in source for sign in _MAGIC):
        matches = glob.glob(source, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
        found = sorted(path for path in matches if Path(path).is_file())
        if not found:
            raise FileNotFoundError(f"{source}: no file matches this pattern")
        return found
    try:
        words = shlex.split(source)
    except ValueError:
        return [source]
    return words if len(words) > 1 and all(Path(word).exists() for word in words) else [source]


def names_files(source: str) -> bool:
    """Whether a word of the command line may name files: one that is there, a pattern, or standard input."""
    return source == STDIN or any(sign in source for sign in _MAGIC) or Path(source.partition(":")[0]).exists()


def must_gather(source: str, kind: Kind) -> bool:
    """Whether a source must be written to one plain file before it is read."""
    paths = paths_of(source)
    name, plain = paths[0].lower(), _plain_name(paths[0])
    if len(paths) > 1 or paths[0] == STDIN or name.endswith(".zst"):
        return True
    if kind == "rows":  # readers of rows unpack .gz themselves, and those of tables read Parquet
        return plain.endswith((".jsonl", ".ndjson"))
    return name.endswith(".gz") or plain.endswith(RECORDS)


def gather(source: str, folder: Path, kind: Kind, text_column: str = "") -> Path:
    """Write a source to one file in a folder: texts as text, rows as CSV.

    Args:
        source: a path, several as a shell quotes them, a pattern such as "logs/*.gz", or - for standard input.
        folder: where to write.
        kind: text; or rows, whose JSON Lines become CSV.
        text_column: of texts in JSON Lines or Parquet; text by default.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is damaged, unpacks to far more than its size, or its records do not fit together.
        OSError: the disk is full.
    """
    paths = paths_of(source)
    for path in paths:
        if path != STDIN and not Path(path).exists():
            raise no_such_file(path)
    first = "standard-input" if paths[0] == STDIN else _plain_name(paths[0])
    more = f"+{len(paths) - 1}" if len(paths) > 1 else ""
    stem, suffix = Path(first).stem, Path(first).suffix
    if kind == "rows":
        suffix = ".csv" if suffix in RECORDS or paths[0] == STDIN else suffix
    else:
        suffix = ".txt" if suffix in RECORDS else suffix
    file = folder / f"{stem}{more}{suffix}"
    records = any(_plain_name(path).endswith(RECORDS) for path in paths)
    if records and kind == "rows":
        _write_csv(file, chain.from_iterable(map(_records, paths)), paths[0])
        return file
    with file.open("wb") as out:
        if records:
            for path in paths:
                for number, record in enumerate(_records(path), 1):
                    out.write(_text_of(record, text_column, path, number).encode("utf-8", "surrogatepass") + b"\n")
        else:
            _concatenate(out, paths, headers=kind == "rows")
    return file


def _plain_name(path: str) -> str:
    """The lower-case name of a file without the ending of its compression."""
    name = Path(path).name.lower()
    return name[: -len(Path(name).suffix)] if name.endswith(".zst") else name.removesuffix(".gz")


def _concatenate(out: IO[bytes], paths: Sequence[str], *, headers: bool) -> None:
    """Files one after the other, each ended by a line feed; of tables the header once."""
    header = b""
    for place, path in enumerate(paths):
        with closing(_unpacked(path)) as chunks:
            last = b""
            beginning = next(chunks, b"")
            if headers and len(paths) > 1:
                line, _, rest = beginning.partition(b"\n")
                if place and line.rstrip(b"\r") != header:
                    raise ValueError(f"{path}: its first line is not that of {paths[0]}: give tables with one header")
                header, beginning = line.rstrip(b"\r"), rest if place else beginning
            for last in chain([beginning], chunks):
                out.write(last)
            if len(paths) > 1 and last and not last.endswith(b"\n"):
                out.write(b"\n")


def _unpacked(path: str) -> Generator[bytes, None, None]:
    """The bytes of a file, or standard input, in chunks; unpacked as the ending of its name says."""
    name = path.lower()
    if path == STDIN or not name.endswith(_PACKED):
        with open_bytes(path) as plain:
            yield from read_chunks(plain)
        return
    most, done = max(_ALWAYS, _MOST_RATIO * Path(path).stat().st_size), 0
    try:
        with _opened(path) as file:
            while chunk := file.read(CHUNK_BYTES):
                done += len(chunk)
                if done > most:
                    raise ValueError(
                        f"{path}: unpacks to more than {_MOST_RATIO} times its size: unpack it yourself if it may"
                    )
                yield chunk
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: damaged, or not compressed as its name says ({error}): get it again") from None


def _opened(path: str) -> Any:
    if path.lower().endswith(".gz"):
        return gzip.open(path, "rb")
    try:
        import zstandard
    except ImportError:
        raise ImportError(
            f"{path}: reading .zst needs zstandard, which is not installed: pip install zstandard"
        ) from None
    return _ZstdFile(path, zstandard)


class _ZstdFile:
    """A .zst file for reading, with errors that name it."""

    def __init__(self, path: str, zstandard: Any):
        self._path, self._error = path, zstandard.ZstdError
        self._file = Path(path).open("rb")  # noqa: SIM115  closed by __exit__
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._reader = decompressor.stream_reader(self._file, read_across_frames=True)

    def __enter__(self) -> "_ZstdFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._reader.read(size))
        except self._error as error:
            raise ValueError(f"{self._path}: damaged, or no .zst file ({error}): get it again") from None


def _records(path: str) -> Iterator[Mapping[str, Any]]:
    """The records of a file of JSON Lines or Parquet."""
    if _plain_name(path).endswith(".parquet"):
        yield from _parquet_records(path)
        return
    with closing(_lines(path)) as lines:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise ValueError(f"{path} line {number}: expected a JSON object, got {line[:60]!r}: one object a line")
            yield record


def _lines(path: str) -> Generator[tuple[int, bytes], None, None]:
    """Numbered lines, none longer than `LONGEST_LINE`."""

    class Unpacked:
        def __init__(self) -> None:
            self.chunks, self.rest = _unpacked(path), b""

        def readline(self, limit: int) -> bytes:
            while b"\n" not in self.rest and len(self.rest) < limit and (chunk := next(self.chunks, b"")):
                self.rest += chunk
            end = self.rest.find(b"\n") + 1 or len(self.rest)
            line, self.rest = self.rest[: min(end, limit)], self.rest[min(end, limit) :]
            return line

    file: Any = Unpacked()
    yield from raw_lines(file, path)


def _parquet_records(path: str) -> Iterator[Mapping[str, Any]]:
    try:
        import polars
    except ImportError:
        raise ImportError(f"{path}: reading Parquet needs polars, which is not installed: pip install polars") from None
    try:
        table = polars.scan_parquet(path)
        count = int(table.select(polars.len()).collect().item())
        for start in range(0, count, _SLICE):
            yield from table.slice(start, _SLICE).collect().iter_rows(named=True)
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"{path}: damaged, or no Parquet file ({error!s:.120}): get it again") from None


def _text_of(record: Mapping[str, Any], column: str, path: str, number: int) -> str:
    name = column or "text"
    text = record.get(name)
    if not isinstance(text, str):
        got = "none" if name not in record else f"{text!r:.60}"
        columns = ", ".join(map(str, list(record)[:12]))
        raise ValueError(
            f"{path}: record {number}: expected a text in the column {name!r}, got {got}: "
            f"name it with --text-column (there are {columns})"
        )
    return text


def _write_csv(file: Path, records: Iterable[Mapping[str, Any]], path: str) -> None:
    """Records as CSV; the keys of the first ones are the columns."""
    rows = iter(records)
    first = list(islice(rows, _LOOKED_AT))
    if not first:
        raise ValueError(f"{path}: expected records, got an empty file")
    names = list(dict.fromkeys(name for record in first for name in record))
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        for number, record in enumerate(chain(first, rows), 1):
            if unknown := record.keys() - set(names):
                raise ValueError(
                    f"{path}: record {number}: the key {min(unknown)!r:.60} is in none of the first {_LOOKED_AT:,}"
                )
            writer.writerow([_cell(record.get(name)) for name in names])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
