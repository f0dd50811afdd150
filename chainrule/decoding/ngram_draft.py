"""A draft that costs little more than looking it up: a smoothed n-gram model, by counting."""

from typing import NamedTuple, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel
from chainrule.heads import Categorical, Head
from chainrule.ranges import check_sizes
from chainrule.state import State

USUAL_ORDER = 6
_CODES = 2**63  # an n-gram is a number of 63 bits
_CONTEXTS, _NUMBERS = 2**14, 2**24  # of which distributions are kept at most, and that these hold


class _Order(NamedTuple):
    """The n-grams of one order, grouped by the context before their last symbol.

    Attributes:
        rows: the number of each context that occurs, by its code.
        begins: where the symbols after each context begin, and where the last ones end.
        symbols: that follow the contexts.
        shares: c(h v) / (c(h) + T(h)) of each of them.
        below: T(h) / (c(h) + T(h)) of each context.
    """

    rows: dict[int, int]
    begins: list[int]
    symbols: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    below: list[float]

    @classmethod
    def counted(cls, codes: npt.NDArray[np.int64], vocab_size: int) -> Self:
        """Count n-grams, each a number in base V."""
        codes, counts = np.unique(codes, return_counts=True)
        contexts, begins, kinds = np.unique(codes // vocab_size, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, begins) + kinds
        return cls(
            {context: row for row, context in enumerate(contexts.tolist())},
            [*begins.tolist(), len(codes)],
            codes % vocab_size,
            counts / totals.repeat(kinds),
            (kinds / totals).tolist(),
        )


@final
class NgramDraft(AutoregressiveModel):
    r"""An n-gram model over V symbols, smoothed as by Witten and Bell (1991, IEEE Trans. Inf. Theory 37(4)).

    .. math:: q_n(v \mid h) = \frac{c(h v) + T(h)\, q_{n-1}(v \mid h')}{c(h) + T(h)}, \qquad q_0 = \frac{1}{V}

    c counts in the symbols that were given, T(h) is how many different ones follow the context h there, and h' is h
    without its first. There is nothing to train, so that it learns a text in the time of sorting it a few times.

    Args:
        symbols: (S,) integers in [0, V), the text to learn.
        vocab_size: V.
        order: N, symbols of the longest n-gram; `None` is 6, or fewer where V^6 leaves 63 bits.

    Raises:
        ValueError: a symbol is outside [0, V), or an argument is out of range.

    >>> draft = NgramDraft(torch.tensor([0, 1, 0, 1, 0, 2]), vocab_size=3, order=2)
    >>> draft(torch.tensor([[0, 0]])).probs[0, 1]  # after 0, which 1 followed twice and 2 once
    tensor([0.1778, 0.5333, 0.2889])
    """

    _frame: Tensor

    def __init__(self, symbols: Tensor | npt.NDArray[np.integer], vocab_size: int, order: int | None = None):
        super().__init__()
        check_sizes(vocab_size=vocab_size)
        most = next(n for n in range(USUAL_ORDER, 0, -1) if vocab_size**n < _CODES)
        self.order = most if order is None else order
        if self.order < 1 or vocab_size**self.order >= _CODES:
            raise ValueError(f"order: expected 1 to {most} for {vocab_size} symbols, or None, got {order}")
        text = np.asarray(symbols, np.int64).reshape(-1)
        if text.size and not 0 <= text.min() <= text.max() < vocab_size:
            raise ValueError(f"symbols: expected integers in [0, {vocab_size}), got {text.min()} to {text.max()}")
        self.vocab_size = vocab_size
        self.register_buffer("_frame", torch.empty(0), persistent=False)  # says where the model is
        self._orders: list[_Order] = []
        codes = text
        for n in range(1, self.order + 1):
            if n > 1:
                codes = codes[:-1] * vocab_size + text[n - 1 :]
            if len(codes):
                self._orders.append(_Order.counted(codes, vocab_size))
        self._known: dict[tuple[int, ...], Tensor] = {}

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Head:
        """All conditionals, one after the other; `lengths` changes none."""
        conditionals, _ = self.unroll(x, self.initial_state(len(x)))
        assert isinstance(conditionals, Head)
        return conditionals

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        """The last N - 1 symbols, (B, N - 1), -1 at the beginning; any context is left unread."""
        return torch.full((batch_size, self.order - 1), -1, device=self._frame.device)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        if x_prev is not None:
            state = torch.cat([state, x_prev.unsqueeze(1)], 1)[:, 1:]
        rows = [self._log_probs(tuple(row)) for row in state.tolist()]
        return Categorical(torch.stack(rows).to(self._frame.device)), state

    def _log_probs(self, context: tuple[int, ...]) -> Tensor:
        """log q after the last symbols, (V,), looked up where it was asked for before."""
        known = self._known.get(context)
        if known is None:
            q = np.full(self.vocab_size, 1 / self.vocab_size)
            code, place = 0, 1
            for n, order in enumerate(self._orders):
                if n:
                    if context[-n] < 0:
                        break
                    code, place = code + context[-n] * place, place * self.vocab_size
                row = order.rows.get(code)
                if row is None:
                    break
                followed = slice(order.begins[row], order.begins[row + 1])
                q *= order.below[row]
                q[order.symbols[followed]] += order.shares[followed]
            known = torch.from_numpy(np.log(q)).float()
            if len(self._known) < min(_CONTEXTS, _NUMBERS // self.vocab_size):
                self._known[context] = known
        return known
