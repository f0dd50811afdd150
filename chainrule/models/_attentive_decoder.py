"""Bases of encoder-decoder models: what they share, and a recurrent decoder with attention to a memory."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule._base import ChunkModel, Context
from chainrule._executor import Executor
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._attention import AdditiveAttention, Attention, MultiplicativeAttention
from chainrule.layers._cells import StackedCells, multiplied, symbol_before, symbols_before, symbols_of
from chainrule.layers._packing import scored_places, zero_past_ends
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.layers._sequence_layer import stepping
from chainrule.option_error import OptionError
from chainrule.state import Memory, State, count_rows, expand

ATTENTIONS = ("additive", "multiplicative")


@dataclass(frozen=True)
class Encoded:
    """The input of a decoder."""

    memory: Tensor  # (B, S, N) what can be attended to
    lengths: Tensor | None  # (B,) real positions of each row; None if all are real
    summary: Tensor  # (B, F) the whole input in one vector


class EncoderDecoder(ChunkModel, ABC):
    r"""p(x | c) of V symbols, from features that a decoder makes of the elements before and of an encoded context c.

    `log_prob` is the likelihood in either mode. The terms of `training_objective` are, with label smoothing ε,
    :math:`(1 - \varepsilon) \log p(x_t) + \varepsilon \frac1V \sum_v \log p(v)` (Szegedy et al. 2016).
    """

    vocab_size: int
    label_smoothing: float
    embedding: nn.Embedding
    weight_ho: nn.Parameter | None
    bias_ho: nn.Parameter

    @abstractmethod
    def _features(self, x: Tensor, state: State, x_prev: Tensor | None) -> tuple[Tensor, State]:
        """Features that predict each element of a chunk, (B, T, E), and the state after the chunk."""

    def read(
        self, x: Tensor, state: State, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Categorical, State]:
        features, state = self._features(zero_past_ends(x, lengths), state, x_prev)
        return Categorical(self._scores(features)), state

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        return self._sums_of_terms(x, context, lengths, 0.0)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        return self._sums_of_terms(x, context, lengths, self.label_smoothing)

    def _sums_of_terms(self, x: Tensor, context: Context, lengths: Tensor | None, label_smoothing: float) -> Tensor:
        """Sum (1 - ε) log p(x_t) + ε mean_v log p(v) over the real elements of each row, (B,)."""
        x = zero_past_ends(symbols_of(x), lengths)
        features, _ = self._features(x, self.initial_state(len(x), context), None)
        rows, steps, real = scored_places(x, lengths)
        features, symbols = features[rows, steps], x[rows, steps]  # of real elements alone, (R, E) and (R,)
        terms = Categorical(self._scores(features)).log_prob(symbols)
        if label_smoothing:  # the normaliser cancels and scores are linear: a product with a vector, no table (R, V)
            weight, bias = self._output_weight(), self.bias_ho
            direction = weight.mean(0) - nn.functional.embedding(symbols, weight)
            above = (features.to(direction.dtype) * direction).sum(1) + bias.mean() - bias[symbols]
            terms = terms + label_smoothing * above
        terms = terms if real is None else terms.masked_fill(~real, 0)
        return terms.new_zeros(len(x)).index_add(0, rows, terms)

    def _scores(self, features: Tensor) -> Tensor:
        return nn.functional.linear(features, self._output_weight(), self.bias_ho)

    def _output_weight(self) -> Tensor:
        return self.embedding.weight[: self.vocab_size] if self.weight_ho is None else self.weight_ho

    def _start(self, rows: int) -> Tensor:
        return torch.full((rows,), self.vocab_size, device=self.bias_ho.device)


class AttentiveDecoder(EncoderDecoder):
    r"""A recurrent decoder of V symbols with attention to a memory; a subclass makes the memory in `encode`.

    .. math::
        h_t = \mathrm{cell}([E[x_{t-1}], \tilde h_{t-1}], h_{t-1}), \qquad z_t = \sum_s \alpha_{ts} W_v m_s \\
        \tilde h_t = \tanh(W_h h_t + z_t + b), \qquad p(x_t \mid x_{<t}, c) = \mathrm{softmax}(W_o \tilde h_t + b_o)

    with α from the attention of h_t over the memory m (Luong et al. 2015), and h_0 = tanh(W s + b) of the summary s.
    Feeding :math:`\tilde h_{t-1}` to the recurrence ("input feeding") tells it where the decoder has looked. Without
    it, the whole recurrence is one pass of a fused kernel and the whole attention one batched product. Without
    attention, z_t = W_v s at every step: the whole source in a fixed vector (Cho et al. 2014).

    The first element follows a start symbol, which is only an input: it has number V and an embedding, but no
    probability.

    Args:
        vocab_size: V.
        memory_size: N.
        summary_size: F.
        cell: "lstm", "gru" or "rnn".
        embedding_size: width of E, and of :math:`\tilde h`.
        hidden_size: M, units of each layer.
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, on the embedding, between layers and on :math:`\tilde h`.
        attention: "additive", "multiplicative", or None.
        input_feeding: see above.
        tie_weights: use E as W_o (Press and Wolf 2017).
        label_smoothing: ε of the training objective.
    """

    def __init__(
        self,
        vocab_size: int,
        memory_size: int,
        summary_size: int,
        *,
        cell: str,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        attention: str | None,
        input_feeding: bool,
        tie_weights: bool,
        label_smoothing: float,
    ):
        super().__init__()
        check_sizes(embedding_size=embedding_size)
        check_shares(label_smoothing=label_smoothing)
        self.vocab_size = vocab_size
        self.dropout, self.label_smoothing, self.input_feeding = dropout, label_smoothing, input_feeding
        self.embedding = nn.Embedding(vocab_size + 1, embedding_size)  # the start symbol is the last
        width = embedding_size * (2 if input_feeding else 1)
        self.decoder = recurrent_stack(cell, width, hidden_size, num_layers, dropout)
        self.first = nn.Linear(summary_size, num_layers * hidden_size * (2 if self.decoder.has_cell else 1))
        self.attention = _attention(attention, memory_size, hidden_size, embedding_size)
        self.fixed = nn.Linear(summary_size, embedding_size, bias=False) if self.attention is None else None
        self.combine = nn.Linear(hidden_size, embedding_size)
        self.weight_ho = None if tie_weights else nn.Parameter(torch.empty(vocab_size, embedding_size))
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size))
        self._draw_weights()

    def _draw_weights(self) -> None:
        if self.bias_ho.is_meta:
            return
        for layer in (self.first, self.fixed, self.combine):
            if layer is not None:
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        for weight in (self.embedding.weight, self.weight_ho):
            if weight is not None:  # as output weights, rows of length 1 keep the first scores small
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    @abstractmethod
    def encode(self, context: Context) -> Encoded:
        """Encode the context of each row, once.

        Raises:
            ValueError: the context is not what the model is conditioned on.
        """

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        encoded = self.encode(context)
        if len(encoded.summary) not in (1, batch_size):
            raise ValueError(f"context: expected {batch_size} rows, or one for all, got {count_rows(context)}")
        first = torch.tanh(self.first(encoded.summary)).unflatten(
            1, (-1, self.decoder.num_layers, self.decoder.hidden_size)
        )
        memory = None
        if self.attention is not None:
            memory = Memory(self.attention.remember(encoded.memory, encoded.lengths))
        elif self.fixed is not None:
            memory = self.fixed(encoded.summary)
        first, memory = expand((first, memory), batch_size)
        fed = first.new_zeros(batch_size, self.embedding.embedding_dim) if self.input_feeding else None
        return {"h": tuple(first.unbind(1)) if self.decoder.has_cell else first[:, 0], "fed": fed, "memory": memory}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        if x_prev is not None:
            x_prev = symbol_before(x_prev, self.vocab_size)
        combined, _, state = self._advance(x_prev, state)
        return Categorical(self._scores(combined)), state

    def prepare(self) -> Executor:
        if self.training or not may_prepare(self.decoder):
            return Executor(self)
        with torch.no_grad():
            cells, output, start = StackedCells(self.decoder), multiplied(self._output_weight()), self._start(1)

        def step(x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
            inputs = self._embedded(start.expand(count_rows(state["h"])) if x_prev is None else x_prev)
            if state["fed"] is not None:
                inputs = torch.cat([inputs, state["fed"].to(inputs.dtype)], 1)
            h, last = cells.advance(cells.project(inputs), state["h"])
            combined, _ = self._combined(h, state["memory"])
            conditional = Categorical(nn.functional.linear(combined, output, self.bias_ho))
            return conditional, {**state, "h": last, "fed": combined if self.input_feeding else None}

        return Executor(self, step)

    @property
    def has_attention(self) -> bool:
        """True if `attended` returns weights."""
        return self.attention is not None

    def attended(self, x: Tensor, context: Context) -> Tensor:
        """α: how much each element of x, when it was predicted, attended to each position; (B, T, S), 0 in padding.

        Raises:
            ValueError: the model has no attention.

        >>> from chainrule.models import Seq2Seq
        >>> model = Seq2Seq(5, 4, hidden_size=8).eval()
        >>> context = {"tokens": torch.tensor([[1, 2, 0]]), "lengths": torch.tensor([2])}
        >>> model.attended(torch.tensor([[3, 0]]), context).shape
        torch.Size([1, 2, 3])
        """
        if self.attention is None:
            raise ValueError("attended: expected a model with attention, got one that reads a fixed vector")
        state, x_prev, weights = self.initial_state(len(x), context), None, []
        if not x.shape[1]:
            return self._advance(None, state)[1].unsqueeze(1)[:, :0]
        for element in x.unbind(1):
            _, alpha, state = self._advance(x_prev, state)
            weights.append(alpha)
            x_prev = element
        return torch.stack(weights, 1)

    def _advance(self, x_prev: Tensor | None, state: State) -> tuple[Tensor, Tensor, State]:
        """Take one step: features to predict from, (B, E), the weights of the attention, and the new state."""
        if x_prev is None:
            x_prev = self._start(count_rows(state["h"]))
        return self._attended(self._embedded(x_prev), state)

    def _attended(self, inputs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Take one step from the embedding (B, E) of the previous element."""
        if state["fed"] is not None:
            inputs = torch.cat([inputs, state["fed"]], 1)
        h, last = stepping(self.decoder)(inputs, state["h"])
        combined, alpha = self._combined(h, state["memory"])
        return combined, alpha, {**state, "h": last, "fed": combined if self.input_feeding else None}

    def _features(self, x: Tensor, state: State, x_prev: Tensor | None) -> tuple[Tensor, State]:
        embedded = self._embedded(symbols_before(x, x_prev, self.vocab_size))
        if self.input_feeding:
            return self._read_fed(embedded, state)
        h, last = self.decoder(embedded, state["h"])
        return self._combined(h, state["memory"])[0], {**state, "h": last}

    def _read_fed(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        """Read with input feeding, step by step; products of the words alone are computed at once before."""
        if not embedded.shape[1]:
            return state["fed"].unsqueeze(1)[:, :0], state
        if not may_prepare(self.decoder):
            combined = []
            for words in embedded.unbind(1):
                read, _, state = self._attended(words, state)
                combined.append(read)
            return torch.stack(combined, 1), state
        cells = StackedCells(self.decoder)
        projected, layers, fed = cells.project(embedded), cells.layers_of(state["h"]), state["fed"]
        combined = []
        for words in projected.unbind(1):
            layers = cells.step(words + cells.project(fed, embedded.shape[2], bias=False), layers)
            fed, _ = self._combined(layers[-1][0], state["memory"])
            combined.append(fed)
        return torch.stack(combined, 1), {**state, "h": cells.state_of(layers), "fed": fed}

    def _combined(self, h: Tensor, memory: State) -> tuple[Tensor, Tensor]:
        r""":math:`\tilde h` of h, (B, M) or (B, T, M), and the attention's weights."""
        if self.attention is None:
            read = memory if h.dim() == 2 else memory.unsqueeze(1)
            alpha = h.new_ones(*h.shape[:-1], 0)
        else:
            read, alpha = self.attention(h, memory)
        combined = torch.tanh(self.combine(h) + read)
        return nn.functional.dropout(combined, self.dropout, self.training), alpha

    def _embedded(self, symbols: Tensor) -> Tensor:
        return nn.functional.dropout(self.embedding(symbols_of(symbols)), self.dropout, self.training)


def _attention(kind: str | None, memory_size: int, query_size: int, value_size: int) -> Attention | None:
    match kind:
        case None:
            return None
        case "additive":
            return AdditiveAttention(memory_size, query_size, query_size, value_size)
        case "multiplicative":
            return MultiplicativeAttention(memory_size, query_size, value_size)
    raise OptionError("attention", f"expected one of {', '.join(ATTENTIONS)}, or None for a fixed vector, got {kind!r}")
