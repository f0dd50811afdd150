"""What a reader takes for the files that a user names: one path, or several files, records or arrays."""

from chainrule_app.readers.array_file import read_rows
from chainrule_app.readers.files_in_turn import FilesInTurn, Spool
from chainrule_app.readers.members import FileSet
from chainrule_app.readers.origin import STDIN, DataSource, Origin, read_chunks
from chainrule_app.readers.record_keys import Keys, RecordPairs, sentences_in, texts_in
from chainrule_app.readers.records import numbered_records
from chainrule_app.readers.sources import Kind, holds_records, is_array, is_packed, paths_of
from chainrule_app.readers.tagged.conll_file import HeldSentences

_NO_KEYS = Keys()


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
        raise ValueError(f"{source}: mixes records with other files: pass files of one kind")
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
