"""A sequence generated from a vector: one-to-many."""

from typing import final

from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context, Executor, for_rows
from chainrule._ranges import check_sizes
from chainrule.layers._packing import zero_past_ends
from chainrule.models._recurrent_lm import RecurrentLM
from chainrule.state import State


@final
class VectorToSequence(AutoregressiveModel):
    r"""A recurrent language model that begins in a state made from a vector (as captions from an image's features).

    .. math:: h_0^{(l)} = \tanh(U^{(l)} c + b^{(l)}), \qquad h_t = \mathrm{cell}(E[x_{t-1}], h_{t-1}), \qquad
        p(x_t \mid x_{<t}, c) = \mathrm{softmax}(W_{ho} h_t + b_o)

    The condition is seen once, at the beginning, and what is drawn feeds back. Of an LSTM the cell begins so, and
    :math:`h_0 = \tanh(c_0)`.

    Args:
        vector_size: numbers of the context, (B, vector_size).
        vocab_size: V; elements are integers in [0, V).
        cell: "lstm", "gru" or "rnn".
        embedding_size: width of E; None feeds one-hot vectors.
        hidden_size: M, units of each layer.
        num_layers: recurrent layers.
        dropout: probability of zeroing in training.

    >>> import torch
    >>> model = VectorToSequence(vector_size=3, vocab_size=5, hidden_size=8)
    >>> x = model.sample(2, torch.eye(3)[:2], length=4, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x, torch.eye(3)[:2]).shape
    (torch.Size([2, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        vector_size: int,
        vocab_size: int,
        cell: str = "lstm",
        embedding_size: int | None = None,
        hidden_size: int = 256,
        num_layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(vector_size=vector_size)
        self.vector_size = vector_size
        self.language_model = RecurrentLM(vocab_size, cell, embedding_size, hidden_size, num_layers, dropout)
        self.begin = nn.Linear(vector_size, num_layers * hidden_size)

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        model = self.language_model
        h, _ = model.recurrent(model.inputs(zero_past_ends(x, lengths)), self.initial_state(len(x), context), lengths)
        return model.conditional(h)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.language_model.unroll(x, state, x_prev)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        if not isinstance(context, Tensor) or context.dim() != 2 or context.shape[1] != self.vector_size:
            got = f"shape {tuple(context.shape)}" if isinstance(context, Tensor) else type(context).__name__
            raise ValueError(f"context: expected vectors (B, {self.vector_size}), got {got}")
        vectors = for_rows(context, batch_size).to(self.begin.weight.dtype)
        begin = self.begin(vectors).tanh().unflatten(1, (-1, self.language_model.recurrent.hidden_size))  # (B, L, M)
        if self.language_model.recurrent.has_cell:
            return begin.tanh(), begin
        return begin

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self.language_model.step(x_prev, state)

    def prepare(self) -> Executor:
        return Executor(self, self.language_model.prepare().step)
