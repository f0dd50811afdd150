"""Language models with a recurrent context network: one alone, one that begins in a vector, one around codes."""

from collections.abc import Sequence
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import ChunkModel, Context
from chainrule._checks import for_rows
from chainrule._executor import Executor
from chainrule._ranges import check_shares, check_sizes
from chainrule.layers import AdaptiveSoftmax
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.models._executors import RecurrentExecutor
from chainrule.models._symbol_model import SymbolModel
from chainrule.option_error import OptionError, option
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule.state import State


@final
class RecurrentLM(SymbolModel):
    r"""A recurrent language model over V symbols (Mikolov et al. 2010; LSTM and dropout as in Zaremba et al. 2014).

    .. math::
        h_t = \mathrm{cell}(E[x_{t-1}] + e_{t-1}, h_{t-1}), \qquad
        p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho} h_t + b_o)

    e adds the embeddings of the last 2, ..., N symbols together (`NgramEmbedding`) where
    `ngram_order` is N >= 2; otherwise it is zero. The first element follows a start symbol, an input only: it has
    number V, an embedding, and no probability.

    Args:
        vocab_size: V; elements are integers in [0, V).
        cell: "lstm", "gru" or "rnn".
        embedding_size: width of E; `None` feeds one-hot vectors, so that W_ih itself is the embedding. If not given,
            the task uses 64 for characters and bytes, M for words.
        hidden_size: M, units of each layer.
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, between layers and before the output.
        embedding_dropout: probability of zeroing features of the embedding in training; harmful for narrow embeddings.
        tie_weights: use E as W_ho (Press and Wolf 2017); requires embedding_size = hidden_size, which is also the
            default then.
        ngram_order: N, maximum number of symbols that are embedded together; 1 embeds single symbols only. More than 1
            requires an embedding.
        ngram_buckets: maximum rows of each n-gram table.
        ngram_dropout: probability of leaving out an n-gram in training.
        reset_after: which GRU (see `chainrule.layers.GRU`).
        nonlinearity: which RNN (see `chainrule.layers.RNN`).
        adaptive_softmax: predict in clusters of ever rarer symbols (Grave et al. 2017), exact, and faster for a wide
            vocabulary; symbols must be numbered by falling frequency, as `chainrule.data.WordVocabulary` does. With
            `tie_weights` its weights are the embedding too.
        cutoffs: where the clusters of `adaptive_softmax` begin; `AdaptiveSoftmax.default_cutoffs` if `None`.

    >>> model = RecurrentLM(vocab_size=5, hidden_size=8)
    >>> x = torch.tensor([[0, 1, 2], [3, 4, 0]])
    >>> model(x).logits.shape, model.log_prob(x).shape
    (torch.Size([2, 3, 5]), torch.Size([2]))
    """

    embedding: nn.Embedding | None
    packs = True

    def __init__(
        self,
        vocab_size: int,
        cell: str = "lstm",
        embedding_size: Size | None = None,
        hidden_size: Size = 512,
        num_layers: Layers = 1,
        dropout: Probability = 0.0,
        tie_weights: bool = False,
        *,
        embedding_dropout: Probability = 0.0,
        ngram_order: Annotated[int, Range(1, 16)] = 1,
        ngram_buckets: Annotated[int, Range(1, 2**24)] = 2**14,
        ngram_dropout: Probability = 0.0,
        reset_after: bool = True,
        nonlinearity: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh",
        adaptive_softmax: bool = False,
        cutoffs: Sequence[int] | None = None,
    ):
        super().__init__(vocab_size)
        check_sizes(vocab_size=vocab_size, embedding_size=embedding_size, ngram_order=ngram_order)
        check_shares(dropout=dropout, embedding_dropout=embedding_dropout, ngram_dropout=ngram_dropout)
        size = embedding_size or (hidden_size if tie_weights else None)
        if tie_weights and size != hidden_size:
            raise OptionError(
                "tie_weights",
                f"needs {option('embedding_size')} = {option('hidden_size')}, got {size} and {hidden_size}",
            )
        if ngram_order > 1 and size is None:
            raise OptionError(
                "ngram_order", f"{ngram_order} needs an embedding, got {option('embedding_size')}=None", "give a size"
            )
        self.embedding_dropout, self.dropout = 0.0 if size is None else embedding_dropout, dropout
        if adaptive_softmax and cutoffs is None:
            cutoffs = AdaptiveSoftmax.default_cutoffs(vocab_size)
        self.adaptive = self.embedding = None
        if cutoffs is not None:
            self.adaptive = AdaptiveSoftmax(hidden_size, vocab_size, cutoffs, input_only=int(tie_weights))
        if size is not None and not (tie_weights and self.adaptive):
            self.embedding = nn.Embedding(vocab_size + 1, size)  # the start symbol is the last
        self.add_ngrams(size or 0, ngram_order, ngram_buckets, ngram_dropout)
        self.recurrent = recurrent_stack(
            cell, size or vocab_size + 1, hidden_size, num_layers, dropout,
            reset_after=reset_after, nonlinearity=nonlinearity,
        )  # fmt: skip
        own = not tie_weights and self.adaptive is None
        self.weight_ho = nn.Parameter(torch.empty(vocab_size, hidden_size)) if own else None
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size)) if self.adaptive is None else None
        if self.recurrent.weight_hh_l0.is_meta:  # no numbers to draw
            return
        if self.adaptive is not None:
            self.adaptive.reset_parameters()
        if size is None:  # a one-hot input meets a single column of W_ih, not a sum over all of them
            nn.init.normal_(self.recurrent.weight_ih_l0, std=0.5)
        elif self.embedding is not None and self.weight_ho is None and self.adaptive is None:
            # As output weights, rows of length 1 keep the first scores small.
            nn.init.normal_(self.embedding.weight, std=hidden_size**-0.5)
        if self.weight_ho is not None:
            nn.init.normal_(self.weight_ho, std=hidden_size**-0.5)

    @property
    def layer(self) -> Recurrent:
        return self.recurrent

    def vectors(self, symbols: Tensor) -> Tensor:
        if self.embedding is None:
            return symbols if self.adaptive is None or not self.adaptive.input_only else self.adaptive.embed(symbols)
        return super().vectors(symbols)

    def conditional(self, h: Tensor, before: Tensor | None = None) -> Distribution:
        if self.adaptive is None:
            return super().conditional(h)
        return self.adaptive(dropout(h, self.dropout, self.training))

    def prepare(self) -> RecurrentExecutor:
        return RecurrentExecutor(self)


@final
class VectorToSequence(ChunkModel):
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

    def read(
        self, x: Tensor, state: State, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Distribution, State]:
        model = self.language_model
        h, state = model.recurrent(model.inputs(zero_past_ends(x, lengths), x_prev), state, lengths)
        return model.conditional(h), state

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
