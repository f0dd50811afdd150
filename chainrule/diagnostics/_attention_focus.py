"""How narrowly a model attends, in figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2
from statistics import fmean

import torch
from torch import Tensor

from chainrule._modes import wide


@dataclass(frozen=True)
class AttentionFocus:
    """Means over all queries.

    Attributes:
        queries: how many there are.
        greatest: mean of the greatest weight of each query.
        entropy: mean entropy of the weights, in bits.
        even: mean entropy that weights alike everywhere would have, in bits.
    """

    queries: int
    greatest: float
    entropy: float
    even: float


def attention_focus(weights: Sequence[Tensor]) -> AttentionFocus:
    """The focus of attention weights.

    Args:
        weights: of each row, (T, S), non-negative, each query's sum being 1.

    Raises:
        ValueError: there is no query.

    >>> attention_focus([torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    AttentionFocus(queries=2, greatest=0.75, entropy=0.5, even=1.0)
    """
    queries = [query for row in weights for query in wide(row)]
    if not queries:
        raise ValueError("weights: expected at least one query, got none")
    entropies = [-float(torch.special.xlogy(query, query).sum()) / log(2) for query in queries]
    return AttentionFocus(
        len(queries),
        fmean(float(query.max()) for query in queries),
        fmean(entropies),
        fmean(log2(len(query)) for query in queries),
    )
