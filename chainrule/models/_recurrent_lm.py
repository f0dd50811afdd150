"""A language model with a recurrent context network."""

from collections.abc import Sequence
from typing import Annotated, Literal, final

import torch
from torch import Tensor, distributions, nn

from chainrule._base import AutoregressiveModel, refuse_context
from chainrule._ranges import Layers, Probability, Range, Size, check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.kernels._executors import RecurrentExecutor
from chainrule.layers import AdaptiveSoftmax, default_cutoffs
from chainrule.layers._cells import symbol_before, symbols_before, symbols_of
from chainrule.layers._linear import linear
from chainrule.layers._ngram_embedding import NgramEmbedding
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.layers._sequence_layer import stepping
from chainrule.state import State, count_rows


@final
class RecurrentLM(AutoregressiveModel):
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
        embedding_dropout: the same on the embedding; it costs a narrow embedding more than it gives.
        tie_weights: use E as W_ho (Press and Wolf 2017); needs embedding_size = hidden_size, and takes it if `None`.
        ngram_order: N, symbols that are embedded together at most; 1 embeds single symbols alone. More than 1 needs
            an embedding.
        ngram_buckets: rows of each n-gram table at most.
        ngram_dropout: probability of leaving out an n-gram in training.
        reset_after: which GRU (see `chainrule.layers.GRU`).
        nonlinearity: which RNN (see `chainrule.layers.RNN`).
        adaptive_softmax: predict in clusters of ever rarer symbols (Grave et al. 2017), exact, and faster for a wide
            vocabulary; symbols must be numbered by falling frequency, as `chainrule.data.WordVocabulary` does. With
            `tie_weights` its weights are the embedding too.
        cutoffs: where the clusters of `adaptive_softmax` begin; chosen by `chainrule.layers.default_cutoffs` if `None`.

    >>> model = RecurrentLM(vocab_size=5, hidden_size=8)
    >>> x = torch.tensor([[0, 1, 2], [3, 4, 0]])
    >>> model(x).logits.shape, model.log_prob(x).shape
    (torch.Size([2, 3, 5]), torch.Size([2]))
    """

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
        super().__init__()
        check_sizes(vocab_size=vocab_size, embedding_size=embedding_size, ngram_order=ngram_order)
        check_shares(dropout=dropout, embedding_dropout=embedding_dropout, ngram_dropout=ngram_dropout)
        if tie_weights:
            embedding_size = embedding_size or hidden_size
            if embedding_size != hidden_size:
                raise ValueError(
                    f"tie_weights: needs embedding_size = hidden_size, got {embedding_size} and {hidden_size}"
                )
        if ngram_order > 1 and embedding_size is None:
            raise ValueError(f"ngram_order: {ngram_order} needs an embedding, got embedding_size=None: give a size")
        self.vocab_size = vocab_size
        self.dropout, self.embedding_dropout = dropout, embedding_dropout
        inputs = vocab_size + 1  # the start symbol
        self.adaptive = None
        if adaptive_softmax and cutoffs is None:
            cutoffs = default_cutoffs(vocab_size)
        if cutoffs is not None:
            self.adaptive = AdaptiveSoftmax(hidden_size, vocab_size, cutoffs, input_only=int(tie_weights))
        shared = tie_weights and self.adaptive is not None
        self.embedding = None if embedding_size is None or shared else nn.Embedding(inputs, embedding_size)
        self.ngrams = None
        if ngram_order > 1 and embedding_size is not None:
            self.ngrams = NgramEmbedding(
                inputs,
                embedding_size,
                ngram_order,
                buckets=ngram_buckets,
                padding=vocab_size,
                dropout=ngram_dropout,
            )
        self.recurrent = recurrent_stack(
            cell,
            embedding_size or inputs,
            hidden_size,
            num_layers,
            dropout,
            reset_after=reset_after,
            nonlinearity=nonlinearity,
        )
        own = not tie_weights and self.adaptive is None
        self.weight_ho = nn.Parameter(torch.empty(vocab_size, hidden_size)) if own else None
        self.bias_ho = nn.Parameter(torch.zeros(vocab_size)) if self.adaptive is None else None
        self._draw_weights()

    def _draw_weights(self) -> None:
        """Draw the weights outside of the recurrence."""
        size = self.recurrent.hidden_size
        if self.recurrent.weight_hh_l0.is_meta:  # no numbers to draw
            return
        if self.adaptive is not None:
            self.adaptive.reset_parameters()
        if self._one_hot:  # a one-hot input meets a single column of W_ih, not a sum over all of them
            nn.init.normal_(self.recurrent.weight_ih_l0, std=0.5)
        elif self.embedding is not None and self.weight_ho is None and self.adaptive is None:
            # As output weights, rows of length 1 keep the first scores small.
            nn.init.normal_(self.embedding.weight, std=size**-0.5)
        if self.weight_ho is not None:
            nn.init.normal_(self.weight_ho, std=size**-0.5)

    def forward(
        self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None
    ) -> distributions.Categorical:
        return self.conditional(self.features(x, context, lengths))

    def features(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """h_t of the top layer, which each element is predicted from: (B, T) elements to (B, T, M)."""
        x = zero_past_ends(symbols_of(x), lengths)
        recurrent, recent = self.parts(self.initial_state(x.shape[0], context))
        h, _ = self.recurrent(self.inputs(x, None, recent), recurrent, lengths)
        return h

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[distributions.Categorical, State]:
        recurrent, recent = self.parts(state)
        h, recurrent = self.recurrent(self.inputs(x, x_prev, recent), recurrent)
        if recent is not None:
            recent = torch.cat([recent, symbols_before(x, x_prev, self.vocab_size)], 1)[:, -recent.shape[1] :]
        return self.conditional(h), self.joined(recurrent, recent)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        refuse_context(context)
        recent = None if self.ngrams is None else self.ngrams.initial_state(batch_size)
        return self.joined(self.recurrent.initial_state(batch_size), recent)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[distributions.Categorical, State]:
        recurrent, recent = self.parts(state)
        x_prev = self._start(count_rows(recurrent)) if x_prev is None else symbol_before(x_prev, self.vocab_size)
        features, recent = self._features(x_prev.unsqueeze(1), recent)
        h, recurrent = stepping(self.recurrent)(features.squeeze(1), recurrent)
        return self.conditional(h), self.joined(recurrent, recent)

    def prepare(self) -> RecurrentExecutor:
        return RecurrentExecutor(self)

    def inputs(self, x: Tensor, x_prev: Tensor | None = None, recent: Tensor | None = None) -> Tensor:
        """Inputs of the recurrent layers before each element: the start symbol or `x_prev`, then x without its last.

        Args:
            x: (B, T) elements.
            x_prev: (B,) the element before them; `None` where they begin.
            recent: (B, N - 1) the elements before `x_prev`, of a model with n-grams; start symbols if `None`.

        Returns:
            (B, T, E), or the symbols themselves (B, T) where there is no embedding.
        """
        return self._features(symbols_before(x, x_prev, self.vocab_size), recent)[0]

    def embedded(self, symbols: Tensor) -> Tensor:
        """Return the embedding of single symbols (..): (.., E), or the symbols where there is no embedding."""
        if self._one_hot:
            return symbols
        return dropout(self.vectors(symbols), self.embedding_dropout, self.training)

    @property
    def reads_single_vectors(self) -> bool:
        """True if the recurrent layers read one of V + 1 vectors at each step."""
        return not self._one_hot and self.ngrams is None

    def parts(self, state: State) -> tuple[State, Tensor | None]:
        """Return the state of the recurrent layers, and the (B, N - 1) last symbols of a model with n-grams."""
        return (state["recurrent"], state["recent"]) if self.ngrams is not None else (state, None)

    def _start(self, rows: int) -> Tensor:
        return torch.full((rows,), self.vocab_size, device=self.recurrent.weight_hh_l0.device)

    def _features(self, symbols: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.ngrams is None:
            return self.embedded(symbols), None
        if recent is None:
            recent = self.ngrams.initial_state(len(symbols))
        ngrams, recent = self.ngrams(symbols, recent)
        return dropout(self.vectors(symbols) + ngrams, self.embedding_dropout, self.training), recent

    def joined(self, recurrent: State, recent: Tensor | None) -> State:
        """Invert `parts`."""
        return recurrent if recent is None else {"recurrent": recurrent, "recent": recent}

    def conditional(self, h: Tensor) -> distributions.Categorical:
        """p(x_t | x_{<t}) from the top layer's h_t, (.., M)."""
        h = dropout(h, self.dropout, self.training)
        if self.adaptive is not None:
            return self.adaptive(h)
        return Categorical(linear(h, self.output_weight(), self.bias_ho))

    @property
    def _one_hot(self) -> bool:
        """True if the recurrent layers read symbols as one-hot vectors."""
        return self.embedding is None and not (self.adaptive is not None and self.adaptive.input_only)

    def vectors(self, symbols: Tensor) -> Tensor:
        """E of single symbols, without dropout."""
        if self.embedding is not None:
            return self.embedding(symbols)
        assert self.adaptive is not None
        return self.adaptive.embed(symbols)

    def output_weight(self) -> Tensor:
        """W_ho."""
        if self.weight_ho is not None:
            return self.weight_ho
        assert self.embedding is not None
        return self.embedding.weight[: self.vocab_size]
