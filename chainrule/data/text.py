"""Bytes and text of files, or of the topics of `help()` in CPython, with which a first run needs no download."""

import codecs
import hashlib
import io
import platform
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

CHUNK_BYTES = 1 << 20
_REMEDY = "models trained with --level byte read any file"


def read_text(path: str | Path, *, strict: bool = True) -> Generator[str, None, None]:
    """The text of a file in chunks; `-` is standard input.

    Args:
        path: the file.
        strict: refuse what is no text. Otherwise any byte passes, as a surrogate escape where it is no UTF-8, and
            `ByteVocabulary.encode` gives it back.

    Raises:
        ValueError: a NUL byte or invalid UTF-8 (with byte offset and line), or the path is a directory.
        FileNotFoundError: there is no such file.
    """
    with open_bytes(path) as file:
        yield from decode_chunks(read_chunks(file), name=_name(path), strict=strict)


def read_lines(path: str | Path, *, strict: bool = True) -> Generator[tuple[int, str], None, None]:
    r"""The lines of a file with their numbers from 1, without their ``\n``; `-` is standard input.

    Only ``\n`` ends a line; a ``\r`` before it stays. Lines come as soon as they are there, so a growing log can be
    piped in. Arguments and errors are those of `read_text`.
    """
    name, offset = _name(path), 0
    with open_bytes(path) as file:
        for number, raw in enumerate(file, 1):
            yield number, decode(raw.removesuffix(b"\n"), name=name, strict=strict, offset=offset, line=number)
            offset += len(raw)


def check_file(path: str | Path) -> Path:
    """`path` as a `Path` if it is a file that holds something.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a directory, no regular file, or empty.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise ValueError(f"{path}: expected a regular file, got a device or pipe: write its content to a file first")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: expected text, got an empty file")
    return path


def open_bytes(path: str | Path) -> AbstractContextManager[BinaryIO]:
    """Open a file, or standard input for `-`, for reading bytes."""
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: no such file")
    return open(path, "rb")


def read_chunks(file: BinaryIO, length: int | None = None, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The next `length` bytes of an open file (all if `None`) in chunks of at most `size`."""
    left = sys.maxsize if length is None else length
    while left > 0 and (chunk := file.read(min(size, left))):
        yield chunk
        left -= len(chunk)


def decode_chunks(
    chunks: Iterable[bytes],
    *,
    name: str,
    strict: bool = True,
    offset: int = 0,
    lines_before: Callable[[], int] = int,
) -> Iterator[str]:
    """Decode bytes that come in chunks cut anywhere.

    `offset` and `lines_before` tell how many bytes and lines of the file precede the first chunk; the latter may
    be costly and is called for an error message only.
    """
    pending = b""  # the beginning of a character whose end is in the next chunk: at most 3 bytes
    line = 1
    for chunk in chain(filter(None, chunks), [b""]):
        raw = pending + chunk
        end = _last_whole_character(raw) if chunk else len(raw)
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
    if offset == 0 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{name}: expected UTF-8 text, got UTF-16: convert it, for example with iconv -f utf-16")
    if (nul := raw.find(b"\0")) >= 0:
        number = lines_before() + line + raw.count(b"\n", 0, nul)
        raise ValueError(f"{name}: binary, not text: NUL byte at byte {offset + nul} (line {number}): {_REMEDY}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        number = lines_before() + line + raw.count(b"\n", 0, error.start)
        raise ValueError(
            f"{name}: invalid UTF-8 at byte {offset + error.start} (line {number}): convert it to UTF-8; {_REMEDY}"
        ) from None


def _last_whole_character(raw: bytes) -> int:
    """Place to cut `raw` without cutting a UTF-8 character that may continue after its end."""
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:  # a first byte: of 2, 3 or 4
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(raw) - back if size > back else len(raw)
        if byte < 0x80:
            break
    return len(raw)


def _name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def builtin_text() -> str:
    """The help topics in alphabetical order, about 465,000 characters; the same for the same release of Python."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise FileNotFoundError(
            "no DATA given, and this Python lacks the built-in text (pydoc_data.topics): name a text file"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))


def builtin_name() -> str:
    """Name of the text; its content depends on the release of Python."""
    return f"pydoc_data.topics of Python {platform.python_version()}"


Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the bytes done and the bytes to do."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Source:
    """Bytes with a name, which can be read again and again.

    Attributes:
        name: the name to show and to record: no folders, so that it says nothing of the machine.
        label: the name for errors, with its folders.
        size: the number of bytes.
    """

    name: str
    label: str
    size: int
    open: Callable[[], BinaryIO]

    def fingerprint(self, progress: Progress = no_progress) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""
        digest, done = hashlib.sha256(), 0
        with self.open() as file:
            for chunk in read_chunks(file):
                digest.update(chunk)
                done += len(chunk)
                progress("fingerprint", done, self.size)
        return {"name": self.name, "bytes": done, "sha256": digest.hexdigest()}


def open_source(path: str | Path | None) -> Source:
    """A file as a source, or the built-in text for `None`; raises as `check_file` does."""
    if path is None:
        raw = builtin_text().encode()
        return Source(builtin_name(), builtin_name(), len(raw), lambda: io.BytesIO(raw))
    path = check_file(path)
    return Source(path.name, str(path), path.stat().st_size, lambda: open(path, "rb"))


def fingerprint(path: str | Path | None, progress: Progress = no_progress) -> dict[str, Any]:
    """`{"name", "bytes", "sha256"}` of a file (`None`: of the built-in text), to tell later whether it is still the
    same."""
    return open_source(path).fingerprint(progress)
