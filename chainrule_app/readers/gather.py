"""Data that come from standard input, several files or records, as one plain file, or as one folder of images."""

import csv
import glob
import json
import os
import shlex
import sys
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal

from chainrule.files import naming
from chainrule_app.readers.packed import is_packed, plain_name
from chainrule_app.readers.text import STDIN, no_such_file, open_bytes, raw_lines, read_chunks

Kind = Literal["text", "pairs", "tags", "labelled", "rows", "files"]
KINDS: dict[str, Kind] = {
    "text": "text", "translate": "pairs", "tag": "tags", "classify": "labelled", "table": "rows", "forecast": "rows",
    **dict.fromkeys(("image", "classify-images", "caption", "sound", "music"), "files"),
}  # fmt: skip
"""Kinds of data by task name."""
RECORDS = (".jsonl", ".ndjson", ".parquet")
_MOST_RATIO, _ALWAYS = 200, 1 << 28  # a file unpacks to so many times its size, or to so many bytes
_LOOKED_AT = 1000  # records whose keys become columns
_FEWEST_ROWS, _MOST_ROWS = 64, 1 << 14  # of a Parquet file that are read together
_FRAME_BYTES = 1 << 26  # of these
_EQUAL_CELLS, _CELLS_OF_A_BYTE = 1 << 24, 64  # that a Parquet file may announce: columns that repeat are packed well
_MAGIC = "*?["
_BREAKS = str.maketrans("\t\r\n", "   ")
_WORDS = ("tokens", "words", "form")  # keys of records, and of the tags of the words
_TAGS = ("tags", "ner_tags", "pos_tags", "upos", "labels")


def paths_of(source: str) -> list[str]:
    """Return the files that a source names: one file, the sorted matches of a pattern, or several in quotes.

    >>> paths_of("a.txt"), paths_of("-")
    (['a.txt'], ['-'])
    """
    if source == STDIN or Path(source).exists():
        return [source]
    if matches := _matches(source):
        return matches
    try:
        words = shlex.split(source)
    except ValueError:
        words = [source]
    parts = [[word] if Path(word).exists() else _matches(word) for word in words]
    if len(words) > 1 and all(parts):
        return list(chain.from_iterable(parts))
    if any(sign in source for sign in _MAGIC):
        raise FileNotFoundError(f"{source}: no file matches this pattern: check its folder and its ending")
    return [source]


def _matches(pattern: str) -> list[str]:
    """Return the files that match a pattern, sorted; none for a word that is no pattern."""
    if not any(sign in pattern for sign in _MAGIC):
        return []
    return sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207  may be absolute


def names_files(source: str) -> bool:
    """Return whether a word of the command line may name files: one that is there, a pattern, or standard input."""
    return source == STDIN or any(sign in source for sign in _MAGIC) or Path(source.partition(":")[0]).exists()


def must_gather(source: str, kind: Kind, *, streams: bool = False) -> bool:
    """Return whether a source must be written to one plain file before it is read."""
    paths = paths_of(source)
    if len(paths) > 1:
        return True
    if kind == "files":
        return False
    if paths[0] == STDIN:
        return kind == "rows" or not streams
    name = plain_name(paths[0])
    if name.endswith(RECORDS):
        return kind not in ("rows", "labelled")
    return kind == "text" and not streams and is_packed(paths[0])


def shared_folder(source: str) -> Path:
    """Return the folder that holds all files of a source, as the user would name it."""
    paths = list(map(Path, paths_of(source)))
    folder = os.path.commonpath([(path if path.is_dir() else path.parent).resolve() for path in paths])
    return Path(folder if any(path.is_absolute() for path in paths) else os.path.relpath(folder))


def gather(source: str, folder: Path, kind: Kind, text_column: str = "") -> Path:
    """Write a source to one file in a folder: rows as CSV, all others as lines; or link files below one folder."""
    paths = paths_of(source)
    for path in paths:
        if path != STDIN and not Path(path).exists():
            raise no_such_file(path)
    if kind == "files":
        return _linked(paths, shared_folder(source).resolve(), folder)
    records = [path != STDIN and plain_name(path).endswith(RECORDS) for path in paths]
    if any(records) and not all(records):
        raise ValueError(f"{source}: expected files of one kind, got records and others: give one kind at a time")
    as_csv = kind in ("rows", "labelled")
    first = "standard-input" if paths[0] == STDIN else plain_name(paths[0])
    more = f"+{len(paths) - 1}" if len(paths) > 1 else ""
    suffix = Path(first).suffix
    if records[0] or paths[0] == STDIN:
        suffix = (".csv" if as_csv else ".txt" if kind == "text" else ".tsv") if records[0] or kind == "rows" else ""
    file = folder / f"{Path(first).stem}{more}{suffix}"
    if records[0] and as_csv:
        names, rows = record_rows(paths)
        with naming(file), file.open("w", encoding="utf-8", newline="") as text:
            csv.writer(text, lineterminator="\n").writerows(chain([names], (cells for _, cells in rows)))
        return file
    with naming(file), file.open("wb") as out:
        if records[0]:
            for path in paths:
                for number, (_, record) in enumerate(_records(path), 1):
                    lines = _LINES[kind](record, text_column, f"{path}: record {number}")
                    out.write(lines.encode("utf-8", "surrogatepass") + b"\n")
        else:
            _concatenate(out, paths, headers=as_csv, end=b"\n\n" if kind == "tags" else b"\n")
    return file


def _linked(paths: Sequence[str], shared: Path, folder: Path) -> Path:
    """Return a folder of links to all files, with the sub-folders that they have below the one they share."""
    home = folder / (shared.name or "files")
    files = (file for path in map(Path, paths) for file in (path.rglob("*") if path.is_dir() else [path]))
    for file in {file.parent.resolve() / file.name for file in files if file.is_file()}:
        link = home / file.relative_to(shared)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return home


def _concatenate(out: IO[bytes], paths: Sequence[str], *, headers: bool, end: bytes) -> None:
    """Files one after the other, each ended by some line feeds; of tables the header once.

    Readers skip a byte order mark only at the beginning of a file, so that of several files each loses its own here.
    """
    header = b""
    for index, path in enumerate(paths):
        with closing(_unpacked(path)) as chunks:
            last = b""
            beginning = next(chunks, b"")
            if len(paths) > 1:
                beginning = beginning.removeprefix(BOM_UTF8)
            if headers and len(paths) > 1:
                line, _, rest = beginning.partition(b"\n")
                if index and line.rstrip(b"\r") != header:
                    raise ValueError(f"{path}: expected the header of {paths[0]}: give tables with one header")
                header, beginning = line.rstrip(b"\r"), rest if index else beginning
            for chunk in chain([beginning], chunks):
                out.write(chunk)
                last = (last + chunk)[-len(end) :]
            while len(paths) > 1 and last and not last.endswith(end):
                out.write(b"\n")
                last += b"\n"


def _unpacked(path: str) -> Generator[bytes, None, None]:
    """Yield the unpacked bytes of a file, or standard input, in chunks; no more than a multiple of its size."""
    most, done = sys.maxsize, 0
    if path != STDIN and is_packed(path):
        most = max(_ALWAYS, _MOST_RATIO * Path(path).stat().st_size)
    with open_bytes(path) as file:
        for chunk in read_chunks(file):
            done += len(chunk)
            if done > most:
                raise ValueError(
                    f"{path}: unpacks to more than {_MOST_RATIO} times its size: unpack it yourself if it may"
                )
            yield chunk


def _records(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the records of a file of JSON Lines with their lines, or of a Parquet file with their rows, from 1."""
    if plain_name(path).endswith(".parquet"):
        frames = parquet_frames(path)
        yield from enumerate(chain.from_iterable(frame.iter_rows(named=True) for frame in frames), 1)
        return
    with open_bytes(path) as file:
        for number, line in raw_lines(file, path):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise ValueError(f"{path} line {number}: expected a JSON object, got {line[:60]!r}: one object a line")
            yield number, record


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
            raise ValueError(
                f"{path}: announces {count:,} rows in {size:,} bytes, so that nearly all are equal: keep some of them"
            )
        while len(frame := table.slice(done, rows).collect()):
            yield frame
            done += len(frame)
            rows = max(1, min(2 * rows, _MOST_ROWS, rows * _FRAME_BYTES // max(1, int(frame.estimated_size()))))


def _text_of(record: Mapping[str, Any], column: str, where: str) -> str:
    name = column or "text"
    text = record.get(name)
    if not isinstance(text, str):
        got = "none" if name not in record else f"{text!r:.60}"
        raise ValueError(
            f"{where}: expected a text in the column {name!r}, got {got}: "
            f"name it with --text-column (there are {_names(record)})"
        )
    return text


def _pair_of(record: Mapping[str, Any], column: str, where: str) -> str:
    """Return the texts of a record in the order of its keys: a source and a target, or a source alone."""
    inner = record.get("translation", record)  # as the data sets of Hugging Face have it
    texts = [text for text in inner.values() if isinstance(text, str)] if isinstance(inner, dict) else []
    if not 1 <= len(texts) <= 2:
        raise ValueError(f"{where}: expected two texts, a source and a target, got the keys {_names(record)}")
    return "\t".join(text.translate(_BREAKS) for text in texts)


def _sentence_of(record: Mapping[str, Any], column: str, where: str) -> str:
    """Return a line for each word, with its tag if the record has tags."""
    words, tags = (next((record[name] for name in names if name in record), None) for names in (_WORDS, _TAGS))
    if not isinstance(words, list) or not (tags is None or (isinstance(tags, list) and len(tags) == len(words))):
        raise ValueError(f"{where}: expected the lists tokens and tags, equally long, got the keys {_names(record)}")
    columns = [list(map(str, column)) for column in (words, tags) if column is not None]
    for cell in chain(*columns):
        if not cell or any(sign in cell for sign in " \t\r\n"):
            raise ValueError(f"{where}: expected words and tags without blanks, got {cell!r:.60}")
    return "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True))


def _names(record: Mapping[str, Any]) -> str:
    return ", ".join(map(str, list(record)[:12]))


_LINES = {"text": _text_of, "pairs": _pair_of, "tags": _sentence_of}


def record_rows(paths: Sequence[str]) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the keys of the first records, which name the columns, and the cells of all records with their lines."""
    records = chain.from_iterable(map(_records, paths))
    first = list(islice(records, _LOOKED_AT))
    if not first:
        raise ValueError(f"{paths[0]}: expected records, got an empty file")
    names = list(dict.fromkeys(name for _, record in first for name in record))
    known = set(names)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, (line, record) in enumerate(chain(first, records), 1):
            if not record.keys() <= known:
                unknown = min(record.keys() - known)
                raise ValueError(
                    f"{paths[0]}: record {number}: the key {unknown!r:.60} is in none of the first {_LOOKED_AT:,}"
                )
            yield line, [_cell(record.get(name)) for name in names]

    return names, rows()


def _cell(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return value
    if value is None:
        return ""
    if kind is bool:
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if kind is dict or kind is list else str(value)
