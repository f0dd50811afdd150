"""A language model whose context network is a Transformer."""

from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._positions import LearnedPositions
from chainrule.layers._transformer_stack import Mixer, TransformerStack
from chainrule.models._executors import TransformerExecutor
from chainrule.models._symbol_model import SymbolModel
from chainrule.ranges import Layers, Probability, Range, Size


@final
class TransformerLM(SymbolModel):
    r"""A causal Transformer over V symbols (Vaswani et al. 2017; Radford et al. 2019).

    .. math::
        h^{(0)}_t = \sqrt{D}\, E[x_{t-1}] + e_{t-1}, \qquad
        a^{(l)} = h^{(l-1)} + \mathrm{attention}(\mathrm{norm}(h^{(l-1)})), \qquad
        h^{(l)} = a^{(l)} + \mathrm{ffn}(\mathrm{norm}(a^{(l)}))

    .. math:: p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho}\, \mathrm{norm}(h^{(L)}_t) + b_o)

    e adds the embeddings of the last 2, ..., N symbols together (`NgramEmbedding`) where
    `ngram_order` is N >= 2. The first element follows a start symbol, which is only an input: it has number V and an
    embedding, but no probability.

    Each block reads the last W elements of the block below, so that the cache is bounded however long a text or a
    stream is, and a conditional depends on the last :math:`N + L(W - 1)` elements. Positions are relative ("rotary",
    "alibi") or fixed ("sinusoidal"), which have no end, or "learned", which end at the context length.

    Args:
        vocab_size: V; elements are integers in [0, V).
        model_size: D, a multiple of `num_heads`.
        num_layers: L, blocks.
        num_heads: H, query heads.
        num_kv_heads: key and value heads, a divisor of H: fewer make a smaller cache; `None` is H.
        attention: "softmax", or another mixer in its place (`chainrule.layers._transformer_stack.MIXERS`).
        position: "rotary", "alibi", "sinusoidal", "learned", or `None`.
        window: W, number of elements that each block reads; `None` is the context length.
        context_length: maximum number of elements that a block can read.
        feed_forward_size: units of the feed-forward networks; `None` is 4·D, for "swiglu" 8/3·D.
        activation: "gelu", "gelu-tanh" (its approximation in GPT-2), "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: norms before each branch (pre-norm), or after each sum.
        bias: biases in softmax attention and in the feed-forward networks.
        dropout: probability of zeroing in training, of the input's features and of what each branch adds. If not
            given, the task uses 0 to 0.3, more for more passes over the text.
        tie_weights: use E as W_ho (Press and Wolf 2017), which saves weights if V is large. Untrained, such a model
            expects each symbol to be repeated.
        ngram_order: N, maximum number of symbols that are embedded together; 1 embeds single symbols only.
        ngram_buckets: maximum rows of each n-gram table.
        ngram_dropout: probability of leaving out an n-gram in training. If not given, the task takes twice its dropout.

    >>> model = TransformerLM(vocab_size=5, model_size=8, num_layers=2, num_heads=2)
    >>> x = torch.tensor([[0, 1, 2], [3, 4, 0]])
    >>> model(x).logits.shape, model.log_prob(x).shape
    (torch.Size([2, 3, 5]), torch.Size([2]))
    """

    embedding: nn.Embedding
    bias_ho: nn.Parameter

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
        super().__init__(vocab_size)
        check_sizes(vocab_size=vocab_size, ngram_order=ngram_order)
        self.embedding_dropout = dropout
        self.stack = TransformerStack(
            model_size, num_layers, num_heads, num_kv_heads=num_kv_heads, attention=attention, position=position,
            window=window, context_length=context_length, feed_forward_size=feed_forward_size, activation=activation,
            norm=norm, norm_first=norm_first, dropout=dropout, bias=bias,
        )  # fmt: skip
        self.embedding = nn.Embedding(vocab_size + 1, model_size)  # the start symbol is the last
        self.add_ngrams(model_size, ngram_order, ngram_buckets, ngram_dropout)
        self.weight_ho = None if tie_weights else nn.Parameter(torch.empty(vocab_size, model_size))
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size))
        if not self.embedding.weight.is_meta:
            nn.init.normal_(self.embedding.weight, std=model_size**-0.5)
            if self.weight_ho is not None:
                nn.init.normal_(self.weight_ho, std=(3 * model_size) ** -0.5)

    @property
    def layer(self) -> TransformerStack:
        return self.stack

    @property
    def positions_end(self) -> int | None:
        """The number of learned positions, which no sequence may exceed; `None` where there is no end."""
        positions = self.stack.positions
        return len(positions.weight) if isinstance(positions, LearnedPositions) else None

    def prepare(self) -> TransformerExecutor:
        return TransformerExecutor(self)

    def vectors(self, symbols: Tensor) -> Tensor:
        table, scale = self.embedding.weight, self.embedding.embedding_dim**0.5
        # The smaller of the two is scaled; a graph for every batch size has one form.
        if not torch.compiler.is_exporting() and len(table) < symbols.numel():
            return nn.functional.embedding(symbols, table * scale)
        return nn.functional.embedding(symbols, table) * scale
