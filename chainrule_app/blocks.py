"""Split rows into blocks."""

from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

Row = TypeVar("Row")


def in_blocks(rows: Iterable[Row], size: int) -> Generator[list[Row], None, None]:
    """Yield lists of `size` rows; the last one may be shorter.

    Closing this generator also closes `rows` if that is a generator. A file that `rows` reads is then closed at once
    after an error, and not only when the exception is deleted.

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
