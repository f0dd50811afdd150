"""A rule for the clusters of an adaptive softmax."""

import math
from collections.abc import Sequence
from itertools import accumulate

from chainrule.ranges import check_sizes

SMALLEST = 8192  # symbols from which clusters pay
SHORTLIST, MIDDLE = 0.75, 0.9  # shares of the text


def default_cutoffs(vocab_size: int, frequencies: Sequence[float] | None = None) -> tuple[int, int] | None:
    r"""Cutoffs of an `AdaptiveSoftmax` over symbols numbered by falling frequency; `None` where the plain one is right.

    The shortlist has the symbols that make up three quarters of the text, the next cluster those that bring it to nine
    tenths, the last one all others. Scores of one element cost, in multiplications of the forward pass, with M
    features, clusters of :math:`n_k` symbols, widths :math:`d_k = M / 4^k`, shares :math:`q_k` of the text, and s about
    64 for the exponential and the memory of a score,

    .. math:: (M + s)(n_0 + 2) + \sum_{k=1}^{2} q_k \left( d_k M + n_k (d_k + s) \right)
        \quad \text{instead of} \quad (M + s) V

    and twice as much again for the gradient: for V = 33,278 and M = 200 a tenth, two thirds of it the shortlist.
    Shorter shortlists cost still less, but then the recurrence is most of a step, and more words have narrow weights.

    Args:
        vocab_size: V. Below 8,192, where the plain softmax is no large part of a step, the answer is `None`.
        frequencies: of each symbol, (V,), in any unit; Zipf's law, :math:`q_v \propto 1 / (v + 1)`, where not given.

    Raises:
        ValueError: `frequencies` are not V numbers >= 0 of which one is above 0.

    >>> default_cutoffs(33_278), default_cutoffs(4096)
    ((2133, 11089), None)
    """
    check_sizes(vocab_size=vocab_size)
    if frequencies is not None and (
        len(frequencies) != vocab_size or min(frequencies) < 0 or not 0 < sum(frequencies) < math.inf
    ):
        raise ValueError(
            f"frequencies: expected {vocab_size} numbers >= 0, not all 0, got {len(frequencies)} from "
            f"{min(frequencies, default=None)} to {max(frequencies, default=None)}"
        )
    if vocab_size < SMALLEST:
        return None
    if frequencies is None:
        frequencies = [1 / rank for rank in range(1, vocab_size + 1)]
    shares = list(accumulate(frequencies))
    first, second = (
        next(number for number, share in enumerate(shares, 1) if share >= part * shares[-1])
        for part in (SHORTLIST, MIDDLE)
    )
    if not first < second < vocab_size:  # a few symbols are nearly all of the text
        return None
    return first, second
