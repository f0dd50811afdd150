"""Weights of a softmax over many symbols in clusters of frequency, their cutoffs, and an embedding that shares them."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from chainrule._ranges import check_sizes
from chainrule.heads._computed_categorical import AdaptiveCategorical
from chainrule.kernels._transforms import values_are_known


@final
class AdaptiveSoftmax(nn.Module):
    r"""Features (.., M) to a distribution over V symbols, the rarer the symbol the narrower its weights.

    Symbols are numbered by falling frequency. Those below the first cutoff, the shortlist, have rows of M numbers; the
    k-th cluster after it has rows of :math:`d_k = \max(\lfloor M / 4^k \rfloor, 1)` numbers and a projection
    :math:`P_k` from M. `AdaptiveCategorical` has the equation of p.

    `embed` reads the same weights as an embedding (adaptive input representations, Baevski and Auli 2019): the vector
    of a symbol of cluster k is its row of W_k times P_k, so that scores are products with the embedding, as in any
    softmax with tied weights.

    Args:
        hidden_size: M.
        vocab_size: V.
        cutoffs: where clusters after the shortlist begin, ascending in (0, V); none for one cluster, the plain softmax.
        reduction: how many times narrower each cluster is than the previous one.
        input_only: symbols V, V + 1, .. that `embed` knows and no probability goes to, such as a start symbol.

    Source: E. Grave, A. Joulin, M. Cissé, D. Grangier and H. Jégou, Efficient softmax approximation for GPUs, 2017;
    A. Baevski and M. Auli, Adaptive input representations for neural language modeling, 2019.

    >>> softmax = AdaptiveSoftmax(hidden_size=16, vocab_size=100, cutoffs=[10, 40])
    >>> softmax(torch.zeros(2, 16))
    AdaptiveCategorical(batch_shape=(2,), V=100, clusters=[10, 30, 60])
    >>> [tuple(weight.shape) for weight in softmax.tail_weights], softmax.embed(torch.tensor([3, 99])).shape
    ([(30, 4), (60, 1)], torch.Size([2, 16]))
    """

    def __init__(
        self, hidden_size: int, vocab_size: int, cutoffs: Sequence[int], *, reduction: float = 4.0, input_only: int = 0
    ):
        super().__init__()
        check_sizes(hidden_size=hidden_size, vocab_size=vocab_size)
        ends = [0, *map(int, cutoffs), vocab_size]
        if ends[1:-1] != list(cutoffs) or any(first >= second for first, second in pairwise(ends)):
            raise ValueError(
                f"cutoffs: expected ascending integers from 1 to {vocab_size - 1}, V - 1, got {list(cutoffs)}"
            )
        if not 1 <= reduction < math.inf:
            raise ValueError(f"reduction: expected a number >= 1, got {reduction}")
        if input_only < 0:
            raise ValueError(f"input_only: expected an integer >= 0, got {input_only}")
        self.vocab_size = vocab_size
        self.cutoffs = tuple(ends[1:-1])
        self.input_only = input_only
        self.head_weight = nn.Parameter(torch.empty(ends[1] + len(cutoffs), hidden_size))
        self.head_bias = nn.Parameter(torch.empty(len(self.head_weight)))
        self.projections, self.tail_weights, self.tail_biases = (nn.ParameterList() for _ in range(3))
        for number, (start, end) in enumerate(pairwise(ends[1:]), 1):
            width = max(int(hidden_size / reduction**number), 1)
            self.projections.append(nn.Parameter(torch.empty(width, hidden_size)))
            self.tail_weights.append(nn.Parameter(torch.empty(end - start, width)))
            self.tail_biases.append(nn.Parameter(torch.empty(end - start)))
        self.input_weight = nn.Parameter(torch.empty(input_only, hidden_size)) if input_only else None
        self.reset_parameters()

    @staticmethod
    def default_cutoffs(vocab_size: int, frequencies: Sequence[float] | None = None) -> tuple[int, int] | None:
        r"""Choose cutoffs for symbols numbered by falling frequency; `None` where the plain softmax is right.

        The shortlist has the symbols that make up three quarters of the text, the next cluster those that bring it to
        nine tenths, the last one all others. Scores of one element cost, in multiplications of the forward pass, with M
        features, clusters of :math:`n_k` symbols, widths :math:`d_k = M / 4^k`, shares :math:`q_k` of the text, and s
        about 64 for the exponential and the memory of a score,

        .. math:: (M + s)(n_0 + 2) + \sum_{k=1}^{2} q_k \left( d_k M + n_k (d_k + s) \right)
            \quad \text{instead of} \quad (M + s) V

        and twice as much again for the gradient: for V = 33,278 and M = 200 a tenth, two thirds of it the shortlist.
        Shorter shortlists cost still less, but then the recurrence is most of a step, and more words have narrow
        weights.

        Args:
            vocab_size: V. Below 8,192, where the plain softmax is no large part of a step, the answer is `None`.
            frequencies: (V,) of the symbols, in any unit; by default Zipf's law, :math:`q_v \propto 1 / (v + 1)`.

        Raises:
            ValueError: `frequencies` are not V numbers >= 0 with one above 0.

        >>> AdaptiveSoftmax.default_cutoffs(33_278), AdaptiveSoftmax.default_cutoffs(4096)
        ((2133, 11089), None)
        """
        check_sizes(vocab_size=vocab_size)
        q = 1 / np.arange(1, vocab_size + 1) if frequencies is None else np.asarray(frequencies, dtype=float)
        if q.shape != (vocab_size,) or not (q.min() >= 0 and 0 < q.sum() < math.inf):
            smallest, largest = (q.min(), q.max()) if q.size else (None, None)
            raise ValueError(
                f"frequencies: expected {vocab_size} numbers >= 0, not all 0, got {len(q)} from {smallest} to {largest}"
            )
        if vocab_size < SMALLEST:
            return None
        shares = q.cumsum()
        first, second = (int(shares.searchsorted(part * shares[-1])) + 1 for part in (SHORTLIST, MIDDLE))
        if not first < second < vocab_size:  # a few symbols are nearly all of the text
            return None
        return first, second

    def reset_parameters(self) -> None:
        """Draw weights with which every vector of `embed` has a length near 1 and, without features, p(v) = 1 / V."""
        if self.head_bias.is_meta:
            return
        rows = [self.head_weight, *self.tail_weights, *([] if self.input_weight is None else [self.input_weight])]
        for weight in rows:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        for projection in self.projections:
            nn.init.orthogonal_(projection)  # rows of length 1: a projected vector keeps its length
        for bias in (self.head_bias, *self.tail_biases):
            nn.init.zeros_(bias)
        with torch.no_grad():
            for number, bias in enumerate(self.tail_biases, self._shortlist):
                self.head_bias[number] = math.log(len(bias))

    def forward(self, h: Tensor) -> AdaptiveCategorical:
        """p(v | h) from features (.., M)."""
        tails = zip(self.projections, self.tail_weights, self.tail_biases, strict=True)
        return AdaptiveCategorical(h, (self.head_weight, self.head_bias), list(tails))

    def embed(self, symbols: Tensor) -> Tensor:
        """Return the vectors (.., M) of symbols (..) in [0, V + input_only)."""
        flat = symbols.reshape(-1).long().contiguous()
        starts = [0, *self.cutoffs] + ([self.vocab_size] if self.input_only else [])
        group = torch.bucketize(flat, torch.tensor(starts[1:], device=flat.device), right=True)
        if not values_are_known(flat):  # every vector from every group
            everywhere = [
                self._vectors(number, torch.where(group == number, flat - start, 0)) * (group == number).unsqueeze(1)
                for number, start in enumerate(starts)
            ]
            return torch.stack(everywhere).sum(0).view(*symbols.shape, self.head_weight.shape[1])
        order, vectors = [], []
        for number, start in enumerate(starts):
            members = (group == number).nonzero().squeeze(1)
            order.append(members)
            vectors.append(self._vectors(number, flat[members] - start))
        places = torch.empty_like(flat)
        places[torch.cat(order)] = torch.arange(len(flat), device=flat.device)
        return torch.cat(vectors).index_select(0, places).view(*symbols.shape, self.head_weight.shape[1])

    def _vectors(self, group: int, rows: Tensor) -> Tensor:
        if group == 0:
            return embedding(rows, self.head_weight)
        if group <= len(self.projections):
            return embedding(rows, self.tail_weights[group - 1]) @ self.projections[group - 1]
        assert self.input_weight is not None
        return embedding(rows, self.input_weight)

    @property
    def _shortlist(self) -> int:
        return len(self.head_weight) - len(self.projections)

    def extra_repr(self) -> str:
        hidden_size = self.head_weight.shape[1]
        return f"hidden_size={hidden_size}, vocab_size={self.vocab_size}, cutoffs={self.cutoffs}"


SMALLEST = 8192  # symbols from which clusters pay
SHORTLIST, MIDDLE = 0.75, 0.9  # shares of the text
