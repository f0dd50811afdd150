"""The files that a user names, and what a reader takes for them: one path, or several files, records or arrays."""

import glob
import shlex
from itertools import chain
from pathlib import Path
from typing import Literal

from chainrule_app.readers.array_file import is_array, read_rows
from chainrule_app.readers.files_in_turn import FilesInTurn, Spool
from chainrule_app.readers.members import FileSet
from chainrule_app.readers.origin import DataSource, Origin
from chainrule_app.readers.packed import is_packed
from chainrule_app.readers.record_keys import Keys, RecordPairs, sentences_in, texts_in
from chainrule_app.readers.records import holds_records, numbered_records
from chainrule_app.readers.tagged.conll_file import HeldSentences
from chainrule_app.readers.text import STDIN, read_chunks

Kind = Literal["text", "pairs", "tags", "labelled", "rows", "files"]
KINDS: dict[str, Kind] = {
    "text": "text", "translate": "pairs", "tag": "tags", "classify": "labelled", "table": "rows", "forecast": "rows",
    **dict.fromkeys(("image", "classify-images", "caption", "sound", "music"), "files"),
}  # fmt: skip
"""Kinds of data by task name."""
_MAGIC = "*?["
_NO_KEYS = Keys()


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


def gathered(source: str, kind: Kind, keys: Keys = _NO_KEYS, *, streams: bool = False) -> str | DataSource:
    """Return what a reader of a kind of data takes for a source: the path of one file, or a `DataSource`.

    Args:
        source: as the user named it.
        kind: of the data.
        keys: of records.
        streams: whether standard input and compressed texts are read once, from the beginning to the end.
    """
    paths = paths_of(source)
    first = paths[0]
    if kind == "files":
        return first if len(paths) == 1 else FileSet(paths)
    if kind == "rows" and len(paths) == 1 and is_array(first):
        from chainrule_app.typed_columns import array_table

        return array_table(read_rows(first), Origin(first, "index"))
    records = [path != STDIN and holds_records(path) for path in paths]
    if any(records) and not all(records):
        raise ValueError(f"{source}: expected files of one kind, got records and others: give one kind at a time")
    if len(paths) == 1 and not (records[0] and kind in ("text", "pairs", "tags")):
        plain = first != STDIN and not (kind == "text" and is_packed(first))
        if plain or (streams and not (first == STDIN and kind == "rows")):
            return first
    if kind in ("rows", "labelled"):
        return FilesInTurn(source, paths, headers=not records[0])
    files = FilesInTurn(
        source, paths, end=b"\n\n" if kind == "tags" else b"\n", unit="record" if records[0] else "line"
    )
    if records[0] and kind == "pairs":
        return RecordPairs(files, keys)
    if records[0] and kind == "tags":
        return HeldSentences(files.origin, sentences_in(numbered_records(files), keys, files.origin))
    if kind == "text":
        chunks = (f"{text}\n".encode() for text in texts_in(files, keys)) if records[0] else read_chunks(files.open())
        return Spool(files.origin, chunks, files.name)
    return files
