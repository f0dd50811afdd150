"""Rows, some at a time."""

from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

Row = TypeVar("Row")


def in_blocks(rows: Iterable[Row], size: int) -> Generator[list[Row], None, None]:
    """Lists of `size` rows, the last one shorter.

    Rows that a generator reads from a file are closed with this one: at once where its reader raises, so that no file
    stays open for as long as the exception is kept.

    >>> list(in_blocks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rows = iter(rows)
    try:
        while block := list(islice(rows, size)):
            yield block
    finally:
        if isinstance(rows, Generator):
            rows.close()
