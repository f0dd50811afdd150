"""Data that come from standard input, several files or records, as one plain file, or as one folder of images."""

import csv
import sys
from codecs import BOM_UTF8
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import IO

from chainrule.files import naming
from chainrule_app.readers.array_file import write_rows
from chainrule_app.readers.record_keys import Keys, located_records, record_lines
from chainrule_app.readers.records import record_rows
from chainrule_app.readers.sources import (
    Kind,
    holds_records,
    is_array,
    is_packed,
    paths_of,
    plain_name,
    shared_folder,
)
from chainrule_app.readers.text import STDIN, no_such_file, open_bytes, read_chunks

_MOST_RATIO, _ALWAYS = 200, 1 << 28  # a file unpacks to so many times its size, or to so many bytes
_NO_KEYS = Keys()


def gather(source: str, folder: Path, kind: Kind, keys: Keys = _NO_KEYS) -> Path:
    """Write a source to one file in a folder: rows as CSV, all others as lines; or link files below one folder."""
    paths = paths_of(source)
    if kind == "rows" and len(paths) == 1 and paths[0] != STDIN and is_array(paths[0]):
        file = folder / f"{Path(paths[0]).stem}.csv"
        write_rows(paths[0], file)
        return file
    for path in paths:
        if path != STDIN and not Path(path).exists():
            raise no_such_file(path)
    if kind == "files":
        return _linked(paths, shared_folder(source).resolve(), folder)
    records = [path != STDIN and holds_records(path) for path in paths]
    if any(records) and not all(records):
        raise ValueError(f"{source}: mixes records with other files: pass files of one kind")
    as_csv = kind in ("rows", "labelled")
    first = "standard-input" if paths[0] == STDIN else plain_name(paths[0])
    more = f"+{len(paths) - 1}" if len(paths) > 1 else ""
    suffix = Path(first).suffix
    if records[0] or paths[0] == STDIN:
        suffix = (".csv" if as_csv else ".txt" if kind == "text" else ".tsv") if records[0] or kind == "rows" else ""
    file = folder / f"{Path(first).stem}{more}{suffix}"
    if records[0]:
        with naming(file), file.open("w", encoding="utf-8", newline="") as text:
            if as_csv:
                names, rows = record_rows(paths)
                csv.writer(text, lineterminator="\n").writerows(chain([names], (cells for _, cells in rows)))
            else:
                text.writelines(f"{line}\n" for line in record_lines(located_records(paths), kind, keys))
        return file
    with naming(file), file.open("wb") as out:
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
                    raise ValueError(
                        f"{path}: its header differs from that of {paths[0]}: all files need the same header"
                    )
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
                    f"{path}: expands to more than {_MOST_RATIO}× its size (possible archive bomb): "
                    "decompress it first if you trust it"
                )
            yield chunk
