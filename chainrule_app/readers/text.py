"""Read bytes and text from files and parts of them or, if no file is given, from the topics of CPython's `help()`."""

import codecs
import hashlib
import io
import platform
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.files import refuse_device
from chainrule.option_error import OptionError, UserError, option
from chainrule_app.readers.origin import ByteSource, DataSource
from chainrule_app.readers.packed import open_unpacked

STDIN = "-"  # the path of standard input
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+([^/].*)", re.DOTALL)  # a `Path` has one slash where the URL has two
_USER = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]+:/+)[^\s/@'\"]+@")
_QUERY = re.compile(r"\b((?:https?|ftp):/+[^\s?'\"]*)\?[^\s'\"]*")
TREES = ("url-objects", "url-work")  # folders of copies of what is behind URLs, and of what is written for them
CHUNK_BYTES = 1 << 20
_SCHEMES = ("http", "https", "ftp", "s3", "gs", "hf")  # of a URL
LONGEST_LINE = 1 << 25  # bytes: a line is held in memory
_GZIP = b"\x1f\x8b"
NO_UTF8 = "expected UTF-8, got other bytes: convert the file, from Latin-1 for example with iconv -f latin1 -t utf-8"
_REMEDY = f"models trained with {option('level', 'byte')} read any file"


def read_text(path: str | Path | ByteSource, *, strict: bool = True) -> Generator[str, None, None]:
    """Yield the text of a file in chunks; `-` is standard input.

    Args:
        path: the file.
        strict: refuse what is no text. Otherwise any byte passes, as a surrogate escape where it is no UTF-8, and
            `ByteVocabulary.encode` gives it back.

    Raises:
        ValueError: a NUL byte or invalid UTF-8 (with byte offset and line), or the path is a directory.
        FileNotFoundError: there is no such file.
    """
    with open_bytes(path) as file:
        chunks = read_chunks(file)
        yield from decode_chunks(with_line_feeds(chunks) if strict else chunks, name=name_of(path), strict=strict)


def read_lines(path: str | Path | ByteSource, *, strict: bool = True) -> Generator[tuple[int, str], None, None]:
    r"""Yield the lines of a file with their numbers from 1, without their ``\n``; `-` is standard input.

    Only ``\n`` ends a line, or ``\r`` where a text has no ``\n``; a ``\r`` before it stays. Lines come as soon as they
    are there, so a growing log can be piped in. Arguments and errors match `read_text`.
    """
    name, offset = name_of(path), 0
    with open_bytes(path) as file:
        for number, raw in raw_lines(file, name):
            if strict and number == 1 and b"\n" not in raw:  # the whole file: lines may end in carriage returns alone
                text = decode(raw, name=name, strict=strict, offset=0, line=1)
                yield from enumerate(text.removesuffix("\r").split("\r"), 1)
                return
            yield number, decode(raw.removesuffix(b"\n"), name=name, strict=strict, offset=offset, line=number)
            offset += len(raw)


def raw_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    r"""Yield the lines of an open file with their ends, as soon as they are there, with their numbers."""
    for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), 1):
        if len(raw) > LONGEST_LINE:
            raise ValueError(f"{name} line {number}: longer than {LONGEST_LINE >> 20} MiB: split it")
        yield number, raw


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


def no_such_file(path: str | Path, what: str = "file") -> FileNotFoundError:
    """Return the error for a path that does not exist; it mentions URLs.

    >>> print(no_such_file(Path("https://example.com/rows.csv")))
    https://example.com/rows.csv: expected a file, got a URL: download it first, and pass the file
    """
    scheme, separator, rest = str(path).partition(":/")  # a `Path` has one slash where the URL has two
    if separator and scheme.lower() in _SCHEMES:
        url = f"{scheme}://{rest.lstrip('/')}"
        return FileNotFoundError(f"{url}: expected a file, got a URL: download it first, and pass the file")
    return FileNotFoundError(f"{path}: no such {what}")


def refuse_stdin(path: str | Path) -> None:
    """Raise `ValueError` for "-", where files alone can be read."""
    if str(path) == STDIN:
        raise ValueError(
            f"{path}: expected a file, got standard input, which cannot be used here: write it to a file first"
        )


def open_bytes(path: str | Path | ByteSource) -> AbstractContextManager[BinaryIO]:
    """Open a file, unpacked where it is compressed, standard input for `-`, or other bytes, for reading."""
    if isinstance(path, ByteSource):
        return path.open()
    if str(path) == STDIN:
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    if not Path(path).exists():
        raise no_such_file(path)
    return open_unpacked(path)


def read_chunks(file: BinaryIO, length: int | None = None, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the next `length` bytes of an open file (all if `None`) in chunks of at most `size`."""
    left = sys.maxsize if length is None else length
    while left > 0 and (chunk := file.read(min(size, left))):
        yield chunk
        left -= len(chunk)


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
    if offset == 0 and raw.startswith(_GZIP):
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


def name_of(path: str | Path | ByteSource) -> str:
    """Return the name of a file in messages."""
    return "standard input" if str(path) == STDIN else str(path)


def builtin_text() -> str:
    """Return the help topics in alphabetical order, about 375,000 characters; the same for the same release of Python.

    Topics share passages. A paragraph that has come before, blanks apart, is left out, so that held-out text is not
    text of training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise OptionError(
            "data", "expected a text, as this Python lacks the built-in one (pydoc_data.topics), got none"
        ) from None
    seen: set[str] = set()
    texts = []
    for name in sorted(topics):
        new = []
        for paragraph in topics[name].split("\n\n"):
            words = " ".join(paragraph.split())
            if words not in seen:
                seen.add(words)
                new.append(paragraph)
        if new:
            texts.append("\n\n".join(new).rstrip("\n") + "\n")
    return "\n".join(texts)


def builtin_name() -> str:
    """Name of the text; its content depends on the release of Python."""
    return f"pydoc_data.topics of Python {platform.python_version()}"


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


def split_position(source: Source, file: BinaryIO, validation_fraction: float, *, at_line_end: bool) -> int:
    """Return the byte at which the last `validation_fraction` of an open source begins: the nearest line end.

    A text whose nearest line end would change the size of the held-out part by more than half is cut inside a line,
    between two characters, unless `at_line_end` asks for whole lines.
    """
    target = min(max(round(source.size * (1 - validation_fraction)), 1), source.size - 1)
    with _mapped(file) as text:
        mark = b"\r" if text.find(b"\n") < 0 else b"\n"
        after = text.find(mark, target - 1) + 1 or source.size
        ends = [end for end in (text.rfind(mark, 0, target) + 1, after) if 0 < end < source.size]
        cut = min(ends, key=lambda end: abs(end - target), default=0)
        if not at_line_end and (not cut or abs(cut - target) > (source.size - target) / 2):
            cut = _character_start(text, target)
    if not 0 < cut < source.size:
        needed = "two lines" if at_line_end else "two characters"
        raise ValueError(
            f"{source.label}: expected at least {needed}, one to train on and one to hold out, got {source.size} "
            "bytes: add text"
        )
    return cut


@contextmanager
def _mapped(file: BinaryIO) -> Iterator[bytes | mmap]:
    """Yield the bytes of an open file, read from the disk on access."""
    if isinstance(file, io.BytesIO):
        yield file.getvalue()
    else:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            yield content


def _character_start(text: bytes | mmap, position: int) -> int:
    """Return the start of the UTF-8 character nearest to `position`; `position` itself if the bytes are not UTF-8."""
    first = max(position - 3, 0)
    window = text[first : position + 4]  # wide enough to hold the beginning of some character
    starts = [first + index for index, byte in enumerate(window) if byte & 0xC0 != 0x80]
    if not starts:
        return position
    return min((start for start in starts if start > 0), key=lambda start: abs(start - position), default=0)


def is_url(path: str | Path) -> bool:
    """Return whether a path is a URL; one letter before the colon is a drive.

    >>> is_url("s3://bucket/a.csv"), is_url(Path("s3://bucket/a.csv")), is_url("a.csv"), is_url("C:/a.csv")
    (True, True, False, False)
    """
    return URL.fullmatch(str(path)) is not None


def public(text: str) -> str:
    """Return a text without what URLs in it hold of credentials: names before an @, and the query of a web address.

    >>> public("no https://me:key@host/a.csv?signature=1 here")
    'no https://host/a.csv here'
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


def shown(path: str | Path) -> str:
    """Return a path or a text with it as users know it: the URL of a copy, and no credentials of a URL.

    >>> shown("rows.csv"), shown(Path("s3://bucket/a.csv"))
    ('rows.csv', 's3://bucket/a.csv')
    """
    text = str(path)
    if _may_be_copy(text):
        from chainrule_app.readers.copies import root

        copies = rf"{re.escape(str(root()))}/(?:{'|'.join(TREES)})/(?:\.[0-9a-f]{{16}}/)?"
        text = re.sub(copies + r"([a-z][a-z0-9+.-]+)/(?:(\S*?/)query-[0-9a-f]{12}/)?", r"\1://\2", text)
    match = URL.fullmatch(text)
    return public(f"{match[1].lower()}://{match[2]}" if match else text)


def url_of(path: str | Path) -> str | None:
    """Return the URL that a path is, or that it is a copy of; else None."""
    found = shown(path) if is_url(path) or _may_be_copy(str(path)) else ""
    return found if is_url(found) else None


def _may_be_copy(text: str) -> bool:
    return any(tree in text for tree in TREES)
