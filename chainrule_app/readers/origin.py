"""Where data come from: the name of a file and the lines in it, or an argument and the indices of its items.

A reader takes a `DataSource` in place of the path of a file: data in memory, or several files in turn.
"""

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Part:
    """One of several files whose items are numbered through."""

    name: str  # of the file
    before: int  # items in the files before it
    skipped: int = 0  # items at its beginning that are not numbered, such as a header that the first file has too


@dataclass(frozen=True)
class Origin:
    """Name of a source for errors, and the word that numbers its items.

    >>> print(Origin("rows.csv").at(7), Origin("data", "index").at(5), Origin("data", "index"), sep="; ")
    rows.csv line 7; data index 5; data
    >>> Origin("*.csv", parts=[Part("a.csv", 0), Part("b.csv", 10, skipped=1)]).at(12)
    'b.csv line 3'
    """

    name: str  # of the file, with its folders, or of the argument
    unit: str = "line"
    parts: list[Part] = field(default_factory=list, compare=False)  # of several files, as far as they were read

    def __str__(self) -> str:
        return self.name

    def at(self, number: int) -> str:
        """Name one item."""
        for part in reversed(self.parts):
            if number > part.before:
                return f"{part.name} {self.unit} {number - part.before + part.skipped}"
        return f"{self.name} {self.unit} {number}"


class DataSource(ABC):
    """What a reader takes in place of the path of a file: data in memory, or several files in turn."""

    origin: Origin

    def __str__(self) -> str:
        return str(self.origin)

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""


class ByteSource(DataSource):
    """Bytes that can be read again and again."""

    name: str  # to show and to record, without folders

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the bytes for reading."""


def origin_of(source: Any) -> Origin:
    """Return the origin of a source, or of the file that a path names."""
    return source.origin if isinstance(source, DataSource) else Origin(str(source))


def digest_of(origin: Origin, parts: Iterable[bytes]) -> dict[str, Any]:
    """Return the fingerprint of content in memory."""
    digest, size = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        size += len(part)
    return {"name": PurePath(origin.name).name, "bytes": size, "sha256": digest.hexdigest()}


class HeldRows(DataSource):
    """Rows of strings in memory: texts alone, texts with labels, or pairs of sentences."""

    def __init__(self, origin: Origin, rows: Sequence[Sequence[str]]):
        self.origin, self.rows = origin, rows

    def __iter__(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the rows with their indices."""
        return enumerate(self.rows)

    def fingerprint(self) -> dict[str, Any]:
        texts = (text.encode("utf-8", "surrogatepass") for row in self.rows for text in row)
        return digest_of(self.origin, (part for text in texts for part in (b"%d:" % len(text), text)))


STDIN = "-"  # the path of standard input
_SCHEMES = ("http", "https", "ftp", "s3", "gs", "hf")  # of a URL


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


CHUNK_BYTES = 1 << 20


def read_chunks(file: BinaryIO, length: int | None = None, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the next `length` bytes of an open file (all if `None`) in chunks of at most `size`."""
    left = sys.maxsize if length is None else length
    while left > 0 and (chunk := file.read(min(size, left))):
        yield chunk
        left -= len(chunk)
