"""Pairs of sentences as files: two of lines, or one with a tab in each line, compressed by gzip or not."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from chainrule.data.text import check_file, decode, open_bytes

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and the number of the line they stand in, from 1."""

    line: int
    source: str
    target: str


def read_pairs(source: str | Path, target: str | Path | None = None) -> Iterator[Pair]:
    """The pairs of two files, line n of the one being the translation of line n of the other, or of one of two columns.

    Sentences lose the white space around them, and may be empty.

    Args:
        source: the source sentences, a line each; or, where there is no `target`, lines of source TAB target.
        target: the target sentences, a line each.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the files have different numbers of lines, a line of two columns has more or fewer, or is no UTF-8.
    """
    if target is None:
        for line, text in read_sentences(check_file(source)):
            columns = text.split("\t")
            if len(columns) != 2:
                raise ValueError(
                    f"{source} line {line}: expected a source, a tab and a target, got {_columns(len(columns))}: "
                    "two files of lines are given as --source and --target"
                )
            yield Pair(line, columns[0].strip(), columns[1].strip())
        return
    counts = [0, 0]
    for one, other in zip_longest(read_sentences(check_file(source)), read_sentences(check_file(target))):
        counts = [count + (side is not None) for count, side in zip(counts, (one, other), strict=True)]
        if counts[0] == counts[1]:
            yield Pair(one[0], one[1].strip(), other[1].strip())
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: "
            "expected as many, line n of the one being the translation of line n of the other"
        )


def read_sentences(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, compressed by gzip or not, with their numbers from 1; `-` is standard input.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no UTF-8, or its compression is damaged.
    """
    name, offset = "standard input" if str(path) == "-" else str(path), 0
    with _open(path) as file:
        try:
            for number, raw in enumerate(file, 1):
                text = decode(raw.rstrip(b"\r\n"), name=name, strict=True, offset=offset, line=number)
                yield number, text
                offset += len(raw)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{name}: expected a file compressed by gzip, got a damaged one ({error})") from None


def _open(path: str | Path) -> AbstractContextManager[BinaryIO]:
    if str(path) != "-" and Path(path).is_file():
        with Path(path).open("rb") as file:
            if file.read(2) == _GZIP:
                return cast("AbstractContextManager[BinaryIO]", gzip.open(path, "rb"))
    return open_bytes(path)


def _columns(count: int) -> str:
    return "one column" if count == 1 else f"{count} columns"
