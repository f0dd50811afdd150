"""A language model with a recurrent context network."""

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Step
from chainrule.heads import Categorical
from chainrule.layers import GRU, LSTM, RNN, Recurrent
from chainrule.layers.projection import symbols_of
from chainrule.state import State

CELLS = ("lstm", "gru", "rnn")
LOOK_UP_LIMIT = 2**25  # elements of a table W_ih E + b that a stepper may hold: 128 MiB in float32


class RecurrentLM(AutoregressiveModel):
    r"""A recurrent language model over V symbols (Mikolov et al. 2010; LSTM and dropout as in Zaremba et al. 2014).

    .. math:: h_t = \mathrm{cell}(E[x_{t-1}], h_{t-1}), \qquad p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho} h_t + b_o)

    Before the first element stands a start symbol, an input only: it has number V, an embedding, and no probability.

    Args:
        vocab_size: V; elements are integers in [0, V).
        cell: "lstm", "gru" or "rnn".
        embedding_size: width of E; `None` feeds one-hot vectors, so that W_ih itself is the embedding, which costs no
            product and is right for characters and bytes.
        hidden_size: M, units of each layer.
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, on the embedding, between layers and before the output.
        tie_weights: use E as W_ho (Press and Wolf 2017); needs embedding_size = hidden_size, and takes it if `None`.
        reset_after: which GRU (see `chainrule.layers.GRU`).
        nonlinearity: which RNN (see `chainrule.layers.RNN`).

    >>> model = RecurrentLM(vocab_size=5, hidden_size=8)
    >>> x = torch.tensor([[0, 1, 2], [3, 4, 0]])
    >>> model(x).logits.shape, model.log_prob(x).shape
    (torch.Size([2, 3, 5]), torch.Size([2]))
    """

    def __init__(
        self,
        vocab_size: int,
        cell: str = "lstm",
        embedding_size: int | None = None,
        hidden_size: int = 512,
        num_layers: int = 1,
        dropout: float = 0.0,
        tie_weights: bool = False,
        *,
        reset_after: bool = True,
        nonlinearity: str = "tanh",
    ):
        super().__init__()
        for name, value in (("vocab_size", vocab_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if value < 1:
                raise ValueError(f"{name}: expected an integer >= 1, got {value}")
        if embedding_size is not None and embedding_size < 1:
            raise ValueError(
                f"embedding_size: expected an integer >= 1, or None for one-hot input, got {embedding_size}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a number in [0, 1), got {dropout}")
        if tie_weights:
            embedding_size = embedding_size or hidden_size
            if embedding_size != hidden_size:
                raise ValueError(
                    f"tie_weights: needs embedding_size = hidden_size, got {embedding_size} and {hidden_size}"
                )
        self.vocab_size = vocab_size
        self.dropout = dropout
        inputs = vocab_size + 1  # the start symbol
        self.embedding = None if embedding_size is None else nn.Embedding(inputs, embedding_size)
        self.recurrent = _recurrent(
            cell, embedding_size or inputs, hidden_size, num_layers, dropout, reset_after, nonlinearity
        )
        self.weight_ho = None if tie_weights else nn.Parameter(torch.empty(vocab_size, hidden_size))
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: recurrences orthogonal gate by gate, forget gates open (Jozefowicz et al. 2015)."""
        if self.bias_ho.is_meta:  # no numbers to draw, and a second's import to find that out
            return
        size = self.recurrent.hidden_size
        for name, parameter in self.recurrent.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.data.split(size):
                    nn.init.orthogonal_(gate)
            elif name.startswith("bias"):
                nn.init.zeros_(parameter)
                if isinstance(self.recurrent, LSTM) and name.startswith("bias_ih"):
                    nn.init.ones_(parameter.data[size : 2 * size])
            else:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        if self.embedding is None:  # a one-hot input meets a single column of W_ih, not a sum over all of them
            nn.init.normal_(self.recurrent.weight_ih_l0, std=0.5)
        elif self.weight_ho is None:  # as output weights, rows of length 1 keep the first scores small
            nn.init.normal_(self.embedding.weight, std=size**-0.5)
        if self.weight_ho is not None:
            nn.init.normal_(self.weight_ho, std=size**-0.5)

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        inputs = self.inputs(x, None)
        h, _ = self.recurrent(inputs, self.initial_state(inputs.shape[0], context), lengths)
        return self.conditional(h)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        h, state = self.recurrent(self.inputs(x, x_prev), state)
        return self.conditional(h), state

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        if context is not None:
            raise ValueError("context: this model is not conditioned on anything; leave it None")
        return self.recurrent.initial_state(batch_size)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        if x_prev is None:
            h = state[0] if isinstance(state, tuple) else state
            x_prev = torch.full((h.shape[0],), self.vocab_size, device=h.device)
        h, state = self.recurrent.step(self.embedded(x_prev), state)
        return self.conditional(h), state

    def stepper(self) -> Step:
        parts = ("step", "embedded", "conditional")
        if any(getattr(type(self), part) is not getattr(RecurrentLM, part) for part in parts):
            return self.step  # a subclass changed what a step is
        with torch.no_grad():
            features = None
            if self.embedding is not None:
                features = self.embedding.weight
                if features.shape[0] * self.recurrent.weight_ih_l0.shape[0] > LOOK_UP_LIMIT:
                    return self.step
            advance = self.recurrent.stepper(features)
            weight, start = self._output_weight().t(), torch.full((1,), self.vocab_size, device=self.bias_ho.device)

        def step(x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
            if x_prev is None:
                x_prev = start.expand(len(state[0] if isinstance(state, tuple) else state))
            h, state = advance(x_prev, state)
            return Categorical(torch.addmm(self.bias_ho, h, weight)), state

        return step

    def inputs(self, x: Tensor, x_prev: Tensor | None = None) -> Tensor:
        """What the recurrent layers read before each element: the start symbol or `x_prev`, then x without its last.

        Returns:
            (B, T, E), or the symbols themselves (B, T) where there is no embedding.
        """
        x = symbols_of(x)
        if x_prev is None:
            x_prev = torch.full_like(x[:, 0], self.vocab_size)
        return self.embedded(torch.cat([x_prev.unsqueeze(1), x[:, :-1]], 1))

    def embedded(self, symbols: Tensor) -> Tensor:
        """The recurrent layers' input for symbols (..): (.., E), or the symbols where there is no embedding."""
        if self.embedding is None:
            return symbols
        return nn.functional.dropout(self.embedding(symbols), self.dropout, self.training)

    def conditional(self, h: Tensor) -> Categorical:
        """p(x_t | x_{<t}) from the top layer's h_t, (.., M)."""
        h = nn.functional.dropout(h, self.dropout, self.training)
        return Categorical(nn.functional.linear(h, self._output_weight(), self.bias_ho))

    def _output_weight(self) -> Tensor:
        if self.weight_ho is not None:
            return self.weight_ho
        assert self.embedding is not None
        return self.embedding.weight[: self.vocab_size]


def _recurrent(
    cell: str, input_size: int, hidden_size: int, num_layers: int, dropout: float, reset_after: bool, nonlinearity: str
) -> Recurrent:
    match cell:
        case "lstm":
            return LSTM(input_size, hidden_size, num_layers, dropout=dropout)
        case "gru":
            return GRU(input_size, hidden_size, num_layers, dropout=dropout, reset_after=reset_after)
        case "rnn":
            return RNN(input_size, hidden_size, num_layers, nonlinearity, dropout=dropout)
    raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {cell!r}")
