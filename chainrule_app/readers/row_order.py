"""The order in which rows are read without training."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


SMALL_BATCH = 1 << 14  # elements, padding counted: up to here batches of unequal rows cost little


def in_order(
    count: int,
    batch_size: int,
    rows: npt.NDArray[np.integer] | None = None,
    lengths: npt.NDArray[np.integer] | None = None,
) -> Iterator[Rows]:
    """Yield every row once, or those in `rows`; with `lengths` (N,), batches end before padding outweighs elements."""
    chosen = np.arange(count) if rows is None else np.asarray(rows, dtype=np.int64)
    if lengths is None:
        return (chosen[start : start + batch_size] for start in range(0, len(chosen), batch_size))
    return _without_much_padding(chosen, batch_size, lengths[chosen].tolist())


def _without_much_padding(chosen: Rows, batch_size: int, lengths: list[int]) -> Iterator[Rows]:
    start = total = longest = 0
    for index, length in enumerate(lengths):
        padded_size = (index + 1 - start) * max(longest, length)
        if index - start == batch_size or (index > start and padded_size > max(2 * (total + length), SMALL_BATCH)):
            yield chosen[start:index]
            start, total, longest = index, 0, 0
        total, longest = total + length, max(longest, length)
    if start < len(chosen):
        yield chosen[start:]
