"""A language model of counts alone, without an optimiser."""

from typing import Any, Self, final

import torch
from torch import Tensor

from chainrule._base import ChunkModel, Context
from chainrule._checks import refuse_context
from chainrule.heads._computed_categorical import LookedUpCategorical
from chainrule.layers._kneser_ney import KneserNey
from chainrule.models._executors import NgramExecutor
from chainrule.state import State


@final
class NgramLM(ChunkModel):
    r"""An n-gram language model with interpolated modified Kneser-Ney smoothing.

    .. math:: p(x_t \mid x_{<t}) = p_n(x_t \mid x_{t-n+1}, \ldots, x_{t-1})

    `chainrule.layers.KneserNey` computes p_n. The model has no weights: it is fitted by counting, in half a second per
    million symbols, and knows n-grams that occurred once. It cannot generalise to similar symbols or use a longer past.
    The counts are not in `state_dict`: save `ngrams.tables()` with it, see `KneserNey.from_tables`.

    Args:
        ngrams: the counts, of symbols in [0, V).

    Source: S. F. Chen and J. Goodman, An empirical study of smoothing techniques for language modeling, 1999.

    >>> import torch
    >>> model = NgramLM.fit(torch.tensor([0, 1, 0, 1, 1, 0, 1]), vocab_size=2, order=3)
    >>> model(torch.tensor([[0, 0]])).probs[0, 1]  # 1 has always followed 0
    tensor([0.2222, 0.7778])
    """

    def __init__(self, ngrams: KneserNey):
        super().__init__()
        self.ngrams = ngrams

    @classmethod
    def fit(cls, text: Tensor, vocab_size: int, order: int, **options: Any) -> Self:
        """Count the n-grams of a text; arguments as for `KneserNey.fit`."""
        return cls(KneserNey.fit(text, vocab_size, order, **options))

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """Return the contexts before the first symbol, (B, n − 1)."""
        refuse_context(context)
        return self.ngrams.initial_contexts(batch_size)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[LookedUpCategorical, State]:
        if x_prev is not None:
            state = self.ngrams.step(x_prev, state)
        return LookedUpCategorical(state, self.ngrams), state

    def read(
        self, x: Tensor, state: State, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[LookedUpCategorical, State]:
        if x_prev is not None:
            state = self.ngrams.step(x_prev, state)
        before, after = self.ngrams.read(x, state)
        last = before[:, -1] if x.shape[1] else after  # the state is ready to read the last symbol
        following = torch.cat([before, after.unsqueeze(1)], 1)[:, 1:]  # none of no symbols
        return LookedUpCategorical(before, self.ngrams, (x, following)), last

    def prepare(self) -> NgramExecutor:
        return NgramExecutor(self)

    @property
    def reach(self) -> int:
        """n − 1 symbols."""
        return self.ngrams.order - 1
