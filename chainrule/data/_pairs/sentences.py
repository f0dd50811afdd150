"""Pairs of a sentence and its translation, from two files or one."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from chainrule.data._delimited import DelimitedFile


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and the number of their line, from 1."""

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
        for line, text in read_sentences(source):
            columns = text.split("\t")
            if len(columns) != 2:
                raise ValueError(
                    f"{source} line {line}: expected a source, a tab and a target, got {_columns(len(columns))}: "
                    "two files of lines are given as --source and --target"
                )
            yield Pair(line, columns[0].strip(), columns[1].strip())
        return
    counts = [0, 0]
    for one, other in zip_longest(read_sentences(source), read_sentences(target)):
        counts = [count + (side is not None) for count, side in zip(counts, (one, other), strict=True)]
        if counts[0] == counts[1]:
            yield Pair(one[0], one[1].strip(), other[1].strip())
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: "
            "expected as many, line n of the one being the translation of line n of the other"
        )


def read_sentences(path: str | Path) -> Generator[tuple[int, str], None, None]:
    """The lines of a file with their numbers from 1; see `DelimitedFile`."""
    return DelimitedFile(path).lines()


def _columns(count: int) -> str:
    return "one column" if count == 1 else f"{count} columns"
