"""Answers that are computed batch by batch, here or in other processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Batch = TypeVar("Batch")
Figures = tuple[Any, ...]
Answered = tuple[list[Sequence[Any]], Figures]
"""Rows of a result, and what its figures need to know of them."""


class Answers(Protocol):
    """Function that yields the rows of all batches in their order."""

    def __call__(
        self, batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None]
    ) -> Iterator[Any]: ...


def nothing() -> None:
    """Add nothing: for answers without figures of all rows."""


def in_turn(
    batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None] = nothing
) -> Iterator[Any]:
    """Yield the rows of all batches.

    Args:
        batches: parts of the data, always cut at the same places, and cheap to pass over.
        answer: returns the rows of a batch, and its figures, of plain values that JSON can hold; its result depends on
            nothing but the batch.
        add: takes the figures of each batch, in the order of batches.

    >>> sums = []
    >>> list(in_turn([[1, 2], [3]], lambda batch: ([(x,) for x in batch], (sum(batch),)), sums.append)), sums
    ([(1,), (2,), (3,)], [3, 3])
    """
    for batch in batches:
        rows, figures = answer(batch)
        add(*figures)
        yield from rows


_STRIDE = 0x9E3779B97F4A7C15  # far from the differences of seeds that people choose


def block_seed(seed: int, number: int) -> int:
    """Return the seed of the draws of a batch, by the seed of all draws and the number of the batch.

    >>> block_seed(3, 0), block_seed(3, 1) != block_seed(4, 0)
    (3, True)
    """
    return (seed + number * _STRIDE) % (1 << 63)
