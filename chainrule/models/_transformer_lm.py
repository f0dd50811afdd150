"""A language model whose context network is a Transformer."""

from collections.abc import Callable
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Executor, refuse_context
from chainrule._ranges import Layers, Probability, Range, Size, check_sizes
from chainrule.heads import Categorical
from chainrule.kernels._plain_modules import may_prepare
from chainrule.kernels._row_vectors import prepared_linear
from chainrule.layers._cells import symbol_before, symbols_before, symbols_of
from chainrule.layers._linear import linear
from chainrule.layers._ngram_embedding import NgramEmbedding
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._positions import LearnedPositions
from chainrule.layers._sequence_layer import LayerStep, stepping
from chainrule.layers._transformer_stack import Mixer, TransformerStack
from chainrule.state import State, count_rows


@final
class TransformerLM(AutoregressiveModel):
    r"""A causal Transformer over V symbols (Vaswani et al. 2017; Radford et al. 2019).

    .. math::
        h^{(0)}_t = \sqrt{D}\, E[x_{t-1}] + e_{t-1}, \qquad
        a^{(l)} = h^{(l-1)} + \mathrm{attention}(\mathrm{norm}(h^{(l-1)})), \qquad
        h^{(l)} = a^{(l)} + \mathrm{ffn}(\mathrm{norm}(a^{(l)}))

    .. math:: p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho}\, \mathrm{norm}(h^{(L)}_t) + b_o)

    e adds the embeddings of the last 2, ..., N symbols together (`NgramEmbedding`) where
    `ngram_order` is N >= 2. The first element follows a start symbol, an input only: it has number V, an embedding, and
    no probability.

    Each block reads the last W elements of the block below, so that the cache is bounded however long a text or a
    stream is, and a conditional depends on the last :math:`N + L(W - 1)` elements. Positions are relative ("rotary",
    "alibi") or fixed ("sinusoidal"), which have no end, or "learned", which end at the context length.

    Args:
        vocab_size: V; elements are integers in [0, V).
        model_size: D, a multiple of `num_heads`.
        num_layers: L, blocks.
        num_heads: H, of queries.
        num_kv_heads: of keys and values, a divisor of H: fewer make a smaller cache; `None` is H.
        attention: "softmax", or another mixer in its place (`chainrule.layers._transformer_stack.MIXERS`).
        position: "rotary", "alibi", "sinusoidal", "learned", or `None`.
        window: W, elements that each block reads; `None` is the context length.
        context_length: the most elements that a block may read.
        feed_forward_size: units of the feed-forward networks; `None` is 4·D, for "swiglu" 8/3·D.
        activation: "gelu", "gelu-tanh" (its approximation in GPT-2), "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: norms before each branch (pre-norm), or after each sum.
        bias: biases in softmax attention and in the feed-forward networks.
        dropout: probability of zeroing in training, of the input's features and of what each branch adds. If not
            given, the task uses 0 to 0.3, more for more passes over the text.
        tie_weights: use E as W_ho (Press and Wolf 2017): it saves weights where V is large. Untrained, such a model
            expects each symbol to be repeated.
        ngram_order: N, symbols that are embedded together at most; 1 embeds single symbols alone.
        ngram_buckets: rows of each n-gram table at most.
        ngram_dropout: probability of leaving out an n-gram in training. The task takes twice its dropout where it is
            not given.

    Raises:
        ValueError: an argument is out of range.

    >>> model = TransformerLM(vocab_size=5, model_size=8, num_layers=2, num_heads=2)
    >>> x = torch.tensor([[0, 1, 2], [3, 4, 0]])
    >>> model(x).logits.shape, model.log_prob(x).shape
    (torch.Size([2, 3, 5]), torch.Size([2]))
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        model_size: Size = 256,
        num_layers: Layers = 4,
        num_heads: Layers = 4,
        num_kv_heads: Layers | None = None,
        attention: Mixer = "softmax",
        position: Literal["rotary", "alibi", "sinusoidal", "learned"] | None = "rotary",
        window: Size | None = None,
        context_length: Size = 256,
        feed_forward_size: Size | None = None,
        activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu",
        norm: Literal["layer", "rms"] = "layer",
        norm_first: bool = True,
        bias: bool = False,
        dropout: Probability = 0.0,
        tie_weights: bool = False,
        ngram_order: Annotated[int, Range(1, 16)] = 1,
        ngram_buckets: Annotated[int, Range(1, 2**24)] = 2**14,
        ngram_dropout: Probability = 0.0,
    ):
        super().__init__()
        check_sizes(vocab_size=vocab_size, ngram_order=ngram_order)
        self.vocab_size, self.dropout = vocab_size, dropout
        self.stack = TransformerStack(
            model_size,
            num_layers,
            num_heads,
            num_kv_heads=num_kv_heads,
            attention=attention,
            position=position,
            window=window,
            context_length=context_length,
            feed_forward_size=feed_forward_size,
            activation=activation,
            norm=norm,
            norm_first=norm_first,
            dropout=dropout,
            bias=bias,
        )
        self.embedding = nn.Embedding(vocab_size + 1, model_size)  # the start symbol is the last
        self.ngrams = None
        if ngram_order > 1:
            self.ngrams = NgramEmbedding(
                vocab_size + 1,
                model_size,
                ngram_order,
                buckets=ngram_buckets,
                padding=vocab_size,
                dropout=ngram_dropout,
            )
        self.weight_ho = None if tie_weights else nn.Parameter(torch.empty(vocab_size, model_size))
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size))
        if not self.embedding.weight.is_meta:
            nn.init.normal_(self.embedding.weight, std=model_size**-0.5)
            if self.weight_ho is not None:
                nn.init.normal_(self.weight_ho, std=(3 * model_size) ** -0.5)

    @property
    def reach(self) -> int | None:
        """The number of last elements that a conditional depends on, including the N − 1 of n-grams; `None` for all."""
        reach = self.stack.reach
        return None if reach is None else reach + (0 if self.ngrams is None else self.ngrams.order - 1)

    @property
    def positions_end(self) -> int | None:
        """The number of learned positions, which no sequence may exceed; `None` where there is no end."""
        positions = self.stack.positions
        return len(positions.weight) if isinstance(positions, LearnedPositions) else None

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        return self._conditional(self.features(x, context, lengths))

    def features(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """norm(h_t) of the last block, which each element is predicted from: (B, T) elements to (B, T, D)."""
        refuse_context(context)
        x = zero_past_ends(symbols_of(x), lengths)  # padding influences no result, but must be a symbol
        inputs, _ = self._features(self._before(x, None), None)
        return self.stack(inputs)[0]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        refuse_context(context)
        recent = None if self.ngrams is None else self.ngrams.initial_state(batch_size)
        return {"stack": self.stack.initial_state(batch_size), "recent": recent}

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        features, recent = self._features(self._before(x, x_prev), state["recent"])
        h, after = self.stack(features, state["stack"])
        return self._conditional(h), {"stack": after, "recent": recent}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        if x_prev is not None:
            x_prev = symbol_before(x_prev, self.vocab_size)
        return self._step(stepping(self.stack), self._conditional, x_prev, state)

    def prepare(self) -> Executor:
        if self.training or not may_prepare(self):
            return Executor(self)
        with torch.no_grad():
            advance, predict = self.stack.prepare(), prepared_linear(self._output_weight(), self.bias_ho)
        return Executor(
            self, lambda x_prev, state: self._step(advance, lambda h: Categorical(predict(h)), x_prev, state)
        )

    def _step(
        self, advance: LayerStep, predict: Callable[[Tensor], Categorical], x_prev: Tensor | None, state: State
    ) -> tuple[Categorical, State]:
        if x_prev is None:
            x_prev = torch.full((count_rows(state["stack"]),), self.vocab_size, device=self.bias_ho.device)
        features, recent = self._features(symbols_of(x_prev).unsqueeze(1), state["recent"])
        h, after = advance(features.squeeze(1), state["stack"])
        return predict(h), {"stack": after, "recent": recent}

    def _before(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        return symbols_before(x, x_prev, self.vocab_size)

    def _features(self, symbols: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Inputs of the first block for symbols (B, T), (B, T, D), and the last symbols after them."""
        table, scale = self.embedding.weight, self.embedding.embedding_dim**0.5
        # The smaller of the two is scaled; a graph for every batch size has one form.
        if not torch.compiler.is_exporting() and len(table) < symbols.numel():
            features = nn.functional.embedding(symbols, table * scale)
        else:
            features = nn.functional.embedding(symbols, table) * scale
        if self.ngrams is not None:
            ngrams, recent = self.ngrams(symbols, self.ngrams.initial_state(len(symbols)) if recent is None else recent)
            features = features + ngrams
        return dropout(features, self.dropout, self.training), recent

    def _conditional(self, h: Tensor) -> Categorical:
        return Categorical(linear(h, self._output_weight(), self.bias_ho))

    def _output_weight(self) -> Tensor:
        return self.embedding.weight[: self.vocab_size] if self.weight_ho is None else self.weight_ho
