"""What the name of a source tells before it is read: its files, and the kind of data in them.

A folder, an archive or a .json file is opened for it, and any file for its first bytes where it may be compressed.
"""

import glob
import shlex
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from chainrule_app.readers.members import ARCHIVES, TARS, file_names
from chainrule_app.readers.origin import DataSource
from chainrule_app.readers.packed import GZIP, ZSTD
from chainrule_app.readers.remote import local_paths
from chainrule_app.readers.text import STDIN, is_url, no_such_file

Kind = Literal["text", "pairs", "tags", "labelled", "rows", "files"]
KINDS: dict[str, Kind] = {
    "text": "text", "translate": "pairs", "tag": "tags", "classify": "labelled", "table": "rows", "forecast": "rows",
    **dict.fromkeys(("image", "classify-images", "caption", "sound", "music"), "files"),
}  # fmt: skip
"""Kinds of data by task name."""
PACKED = (".gz", ".zst")
ARRAYS = (".npy", ".npz")
RECORDS = (".jsonl", ".ndjson", ".parquet")  # endings of files that hold records, whatever is in them
EXCEL = ".xlsx"
TABLES = (".csv", ".tsv", ".parquet", EXCEL)
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
MIDI = (".mid", ".midi", ".kar", ".rmi")
_SHARDS = (".txt", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".tar")
_MAGIC = "*?["


def is_path(source: Any) -> bool:
    """Return whether a source of a run is the path of a file, neither absent nor a `DataSource`."""
    return source is not None and not isinstance(source, DataSource)


def paths_of(source: str) -> list[str]:
    """Return the files that a source names: one file, the sorted matches of a pattern, or several in quotes.

    A folder of shards stands for them, and a URL for its copy.

    >>> paths_of("a.txt"), paths_of("-")
    (['a.txt'], ['-'])
    """
    if source == STDIN or Path(source).exists():
        return shards_in(source) or [source]
    if is_url(source) and " " not in source:
        return [path for copy in local_paths(source) for path in shards_in(copy) or [copy]]
    if matches := _matches(source):
        return matches
    try:
        words = shlex.split(source)
    except ValueError:
        words = [source]
    parts = [[word] if Path(word).exists() else local_paths(word) if is_url(word) else _matches(word) for word in words]
    if len(words) > 1 and all(parts):
        return list(chain.from_iterable(parts))
    if any(sign in source for sign in _MAGIC):
        raise FileNotFoundError(f"{source}: no file matches this pattern: check its folder and its ending")
    return [source]


def shards_in(folder: str) -> list[str]:
    """Return the sorted shards in a folder of two or more files of text, records, rows or media, all of one ending."""
    if not Path(folder).is_dir():
        return []
    paths = sorted(path for path in Path(folder).iterdir() if path.name[0] not in "._")
    endings = {Path(plain_name(path)).suffix for path in paths}
    alike = len(paths) > 1 and len(endings) == 1 and endings <= {*_SHARDS} and all(path.is_file() for path in paths)
    return list(map(str, paths)) if alike else []


def _matches(pattern: str) -> list[str]:
    """Return the files that match a pattern, sorted; none for a word that is no pattern."""
    if not any(sign in pattern for sign in _MAGIC):
        return []
    return sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207  may be absolute


def names_files(source: str) -> bool:
    """Return whether a word of the command line may name files: one that is there, a pattern, or standard input."""
    there = is_url(source) or Path(source.partition(":")[0]).exists()
    return source == STDIN or there or any(sign in source for sign in _MAGIC)


def must_gather(source: str, kind: Kind, *, streams: bool = False) -> bool:
    """Return whether a reader takes something else than a path for a source; see `gathered`."""
    paths = paths_of(source)
    if len(paths) > 1:
        return True
    if kind == "files":
        return False
    if paths[0] == STDIN:
        return kind == "rows" or not streams
    if kind == "rows" and is_array(paths[0]):
        return True
    if holds_records(paths[0]):
        return kind not in ("rows", "labelled")
    return kind == "text" and not streams and is_packed(paths[0])


def plain_name(path: str | Path) -> str:
    """Return the lower-case name of a file without the ending of its compression.

    >>> plain_name("logs/A.csv.gz"), plain_name("a.txt")
    ('a.csv', 'a.txt')
    """
    name = Path(path).name.lower()
    return name.removesuffix(".gz").removesuffix(".zst")


def is_packed(path: str | Path) -> bool:
    """Return whether a file is compressed, by its name or its first bytes."""
    if Path(path).name.lower().endswith(PACKED):
        return True
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return file.read(4).startswith((GZIP, ZSTD))


def is_array(path: str | Path) -> bool:
    """Return whether the name of a file says that it holds arrays; of an .npz, one may be named after a colon."""
    file, _ = file_and_array(path)
    return file.name.lower().endswith(ARRAYS)


def holds_records(path: str | Path) -> bool:
    """Return whether a file holds records, by its name; of .json by its content."""
    name = plain_name(path)
    if not name.endswith(".json") or not Path(path).is_file():
        return name.endswith(RECORDS)
    from chainrule_app.readers.records import is_json_of_records

    return is_json_of_records(path)


def is_table(path: str | Path) -> bool:
    """Return whether the name of a file says that it is a table; records of JSON with texts or messages are texts.

    >>> is_table("rows.csv"), is_table("rows.CSV.gz"), is_table("rows.txt")
    (True, True, False)
    """
    if plain_name(path).endswith(TABLES) or not holds_records(path):
        return plain_name(path).endswith(TABLES)
    from chainrule_app.readers.record_keys import has_texts
    from chainrule_app.readers.records import first_record

    return not has_texts(first_record(path))


def kind_of(path: str | Path) -> str | None:
    """Return table, image, sound, music, tag or translate, whichever a path names; None if its names do not tell.

    Images are a folder or archive with an image, an image, an array or an idx file; sounds and music a file, or a
    folder or archive mostly of them.
    """
    file, _ = file_and_array(path)
    name = file.name.lower()
    if holds_records(path):
        from chainrule_app.readers.record_keys import task_of
        from chainrule_app.readers.records import first_record

        if (told := task_of(first_record(path))) in ("tag", "translate"):
            return told
    if is_table(path):
        return "table"
    if file.is_dir() or (name.endswith(ARCHIVES) and file.is_file()):
        return _kind_within(file)
    if is_array(path):
        from chainrule_app.readers.array_file import holds_rows

        return "table" if holds_rows(path) else "image"
    endings = {"image": IMAGES, "sound": SOUNDS, "music": MIDI}
    if "-idx" in name:
        return "image"
    tagged = "tag" if plain_name(path).endswith((".conllu", ".conll")) else None
    return next((kind for kind in endings if name.endswith(endings[kind])), tagged)


def recognise(source: str | Path) -> str | None:
    """Return the kind of the first file of a source."""
    return kind_of(paths_of(str(source))[0])


def _kind_within(path: Path) -> str | None:
    counts, tar = Counter[str](), path.is_file() and path.name.lower().endswith(TARS)
    for number, name in enumerate(file_names(path)):
        ending = Path(name).suffix.lower()
        if ending in IMAGES and not (tar and number):
            return "image"  # of a .tar archive the first tells: its list takes long to read
        counts["sound" if ending in SOUNDS else "music" if ending in MIDI else ""] += 1
    return next((kind for kind in ("sound", "music") if 2 * counts[kind] > counts.total()), None)


def is_images(path: str | Path) -> bool:
    """Return whether a path names images; see `kind_of`."""
    return kind_of(path) == "image"


def file_and_array(path: str | Path) -> tuple[Path, str | None]:
    """Return a path, and the name of the array after the colon of `x.npz:array`.

    >>> file_and_array("x.npz:train")[1], file_and_array("rows.csv")[1]
    ('train', None)
    """
    file, colon, array = str(path).rpartition(":")
    return (Path(file), array) if colon and file.lower().endswith(".npz") else (Path(path), None)


def check_path(path: str | Path) -> None:
    """Raise FileNotFoundError if there is no such file or folder; - is standard input."""
    if str(path) != STDIN and not file_and_array(path)[0].exists():
        raise no_such_file(path, "file or folder")
