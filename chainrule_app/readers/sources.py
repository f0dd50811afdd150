"""A source of data: the files that its name stands for, the kind of data in them, and the text of one of them.

The kind follows from names. A folder, an archive or a .json file is opened for it, and any file for its first bytes
where it may be compressed.
"""

import codecs
import glob
import hashlib
import io
import shlex
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

from chainrule.files import refuse_device
from chainrule.option_error import UserError, option
from chainrule_app.printing import is_url
from chainrule_app.readers.help_topics import builtin_name, builtin_text
from chainrule_app.readers.members import ARCHIVES, TARS, file_names
from chainrule_app.readers.origin import CHUNK_BYTES, STDIN, ByteSource, DataSource, no_such_file, refuse_stdin
from chainrule_app.readers.remote import local_paths

Kind = Literal["text", "pairs", "tags", "labelled", "rows", "files"]
KINDS: dict[str, Kind] = {
    "text": "text", "translate": "pairs", "tag": "tags", "classify": "labelled", "table": "rows", "forecast": "rows",
    **dict.fromkeys(("image", "classify-images", "caption", "sound", "music"), "files"),
}  # fmt: skip
"""Kinds of data by task name."""
PACKED = (".gz", ".zst")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ARRAYS = (".npy", ".npz")
RECORDS = (".jsonl", ".ndjson", ".parquet")  # endings of files that hold records, whatever is in them
EXCEL = ".xlsx"
TABLES = (".csv", ".tsv", ".parquet", EXCEL)
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
MIDI = (".mid", ".midi", ".kar", ".rmi")
_SHARDS = (".txt", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".tar")
_MAGIC = "*?["
_REMEDY = f"models trained with {option('level', 'byte')} read any file"


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
        from chainrule_app.readers.record_keys import task_of_file

        if (told := task_of_file(path)) in ("tag", "translate"):
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


def check_file(path: str | Path) -> Path:
    """`path` as a `Path` if it is a file that holds something."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    if not path.exists():
        refuse_stdin(path)
        raise no_such_file(path)
    refuse_device(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: expected text, got an empty file")
    return path


def with_line_feeds(chunks: Iterable[bytes], beginning: bytes | None = None) -> Iterator[bytes]:
    r"""Chunks of a text with line feeds for carriage returns, where these alone end the lines of its beginning.

    >>> list(with_line_feeds([b"a\rb\r", b"c\r"])), list(with_line_feeds([b"a\r\nb", b"\rc"]))
    ([b'a\nb\n', b'c\n'], [b'a\r\nb', b'\rc'])
    """
    for chunk in chunks:
        beginning = chunk if beginning is None else beginning
        old_ends = b"\r" in beginning[:-1] and b"\n" not in beginning
        yield chunk.replace(b"\r", b"\n") if old_ends else chunk


def decode_chunks(
    chunks: Iterable[bytes],
    *,
    name: str,
    strict: bool = True,
    offset: int = 0,
    lines_before: Callable[[], int] = int,
) -> Iterator[str]:
    """Decode bytes cut anywhere, after `offset` bytes and `lines_before()` lines of the file, which errors tell."""
    pending = b""  # the beginning of a character whose end is in the next chunk: at most 3 bytes
    line = 1
    for chunk in chain(filter(None, chunks), [b""]):
        raw = pending + chunk
        end = codecs.utf_8_decode(raw, "ignore", not chunk)[1]
        if end:
            yield decode(raw[:end], name=name, strict=strict, offset=offset, line=line, lines_before=lines_before)
        line += raw.count(b"\n", 0, end)
        offset += end
        pending = raw[end:]


def decode(
    raw: bytes, *, name: str, strict: bool, offset: int, line: int, lines_before: Callable[[], int] = int
) -> str:
    """Decode bytes that begin at byte `offset` and at line `line` + `lines_before()` of the file `name`."""
    if not strict:
        return raw.decode("utf-8", "surrogateescape")
    if offset == 0:
        refuse_utf16(raw, name)
    if offset == 0 and raw.startswith(GZIP):
        raise ValueError(f"{name}: expected UTF-8 text, got a file compressed by gzip: unpack it, with gunzip -k")
    if offset == 0 and raw.startswith(codecs.BOM_UTF8):
        raw, offset = raw[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
    if (nul := raw.find(b"\0")) >= 0:
        number = lines_before() + line + raw.count(b"\n", 0, nul)
        raise UserError(f"{name}: binary, not text: NUL byte at byte {offset + nul} (line {number})", _REMEDY)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        number = lines_before() + line + raw.count(b"\n", 0, error.start)
        raise UserError(
            f"{name}: invalid UTF-8 at byte {offset + error.start} (line {number})", f"convert it to UTF-8; {_REMEDY}"
        ) from None


def refuse_utf16(beginning: bytes, name: str) -> None:
    """Refuse a file that begins with a byte order mark of UTF-16."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            f"{name}: expected UTF-8 text, got UTF-16: convert it, for example with iconv -f utf-16 -t utf-8"
        )


Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the bytes done and the bytes to do."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Source:
    """Bytes with a name, which can be read again and again."""

    name: str  # the name to show and to record: no folders, so that it says nothing of the machine
    label: str  # the name for errors, with its folders
    size: int  # the number of bytes
    open: Callable[[], BinaryIO]

    def fingerprint(self) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""
        with self.open() as file:
            return Pass(self, file).fingerprint()


class Pass:
    """One reading of a source, part after part, which digests what it reads."""

    def __init__(self, source: Source, file: BinaryIO, progress: Progress = no_progress):
        self.source, self._file, self._progress = source, file, progress
        self.position = self._lines = 0  # bytes and line feeds before the next part
        self._digest = hashlib.sha256()
        self._pending = self._beginning = file.read(CHUNK_BYTES)

    def text(self, stop: int, *, strict: bool = True, stage: str = "") -> Generator[str, None, None]:
        """Yield the text of the next part, up to byte `stop`, in chunks; errors tell the place in the whole source."""
        lines = self._lines
        chunks = self._bytes(stop, stage)
        yield from decode_chunks(
            with_line_feeds(chunks, self._beginning) if strict else chunks,
            name=self.source.label,
            strict=strict,
            offset=self.position,
            lines_before=lambda: lines,
        )

    def fingerprint(self) -> dict[str, Any]:
        """Read the rest; return `name`, number of `bytes` and `sha256`: equal for equal content."""
        for _ in self._bytes(self.source.size, "fingerprint"):
            pass
        return {"name": self.source.name, "bytes": self.position, "sha256": self._digest.hexdigest()}

    def _bytes(self, stop: int, stage: str) -> Iterator[bytes]:
        start = self.position
        while self.position < stop and (read := self._pending or self._file.read(CHUNK_BYTES)):
            chunk, self._pending = read[: stop - self.position], read[stop - self.position :]
            self._digest.update(chunk)
            self.position += len(chunk)
            self._lines += chunk.count(b"\n")
            yield chunk
            self._progress(stage, self.position - start, stop - start)


def open_source(path: str | Path | ByteSource | None) -> Source:
    """Return a file or other bytes as a source, or the built-in text for `None`; raises as `check_file` does."""
    if isinstance(path, ByteSource):
        with path.open() as file:
            return Source(path.name, str(path), file.seek(0, io.SEEK_END), path.open)
    if path is None:
        raw = builtin_text().encode()
        return Source(builtin_name(), builtin_name(), len(raw), lambda: io.BytesIO(raw))
    path = check_file(path)
    return Source(path.name, str(path), path.stat().st_size, lambda: open(path, "rb"))


def fingerprint(source: str | Path | DataSource | None) -> dict[str, Any]:
    """`name`, `bytes` and `sha256` of a source (`None`: of the built-in text), to tell later whether it is the same."""
    return source.fingerprint() if isinstance(source, DataSource) else open_source(source).fingerprint()
