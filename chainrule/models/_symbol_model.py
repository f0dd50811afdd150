"""The composition that models of symbols share: features of the symbols before, a sequence layer, a head."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import refuse_context
from chainrule._executor import Executor
from chainrule.heads import Categorical
from chainrule.layers._cells import symbol_before, symbols_before
from chainrule.layers._ngrams import NgramEmbedding
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, stepping
from chainrule.models._executors import SymbolExecutor
from chainrule.modes import device_of
from chainrule.state import State, count_rows


class SymbolModel(AutoregressiveModel):
    r"""Whole passes, chunks, steps and prepared steps of a model of V symbols, from its three parts.

    .. math:: h_t, s_t = \mathrm{layer}(E[x_{t-1}] + e_{t-1}, s_{t-1}), \qquad
        p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho}\, h_t + b_o)

    The first element follows a start symbol with number V, which is only an input. e are embeddings of n-grams, or
    zero. A model makes `embedding`, `weight_ho` (`None` for E itself) and `bias_ho`, or overrides `vectors` and
    `conditional`. The state is the layer's; with n-grams it is a dict of "layer" and "recent", the last N − 1 symbols
    (B, N − 1).
    """

    embedding: nn.Module | None
    weight_ho: nn.Parameter | None
    bias_ho: nn.Parameter | None
    packs = False  # whether the layer is faster with lengths; no causal layer needs them

    def __init__(self, vocab_size: int):
        super().__init__()
        self.vocab_size, self.embedding_dropout, self.dropout = vocab_size, 0.0, 0.0
        self.ngrams: NgramEmbedding | None = None

    @property
    @abstractmethod
    def layer(self) -> SequenceLayer:
        """The layer between the input and the head."""

    def add_ngrams(self, size: int, order: int, buckets: int, dropout: float) -> None:
        """Embed the last 2, ..., `order` symbols together in `size` features."""
        if order > 1:
            symbols = self.vocab_size + 1
            self.ngrams = NgramEmbedding(
                symbols, size, order, buckets=buckets, padding=self.vocab_size, dropout=dropout
            )

    @property
    def reach(self) -> int | None:
        """The elements that the layer reads, and the N − 1 before them of n-grams; `None` for all."""
        reach = self.layer.reach
        return None if reach is None else reach + (0 if self.ngrams is None else self.ngrams.order - 1)

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        return self.conditional(*self._read(x, context, lengths))

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """h_t, which each element is predicted from: (B, T) elements to (B, T, M)."""
        return self._read(x, context, lengths)[0]

    def _read(self, x: Tensor, context: Context, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """h_t of whole sequences, and the symbols before each element."""
        before = self.before(zero_past_ends(x, lengths), None)  # padding must be a symbol
        state = self.begin(len(x), context)
        return self.layer(self.embedded(before, None)[0], state, lengths if self.packs else None)[0], before

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.unroll_by(self.embedded, self.layer, x, state, x_prev)

    def unroll_by(
        self, embed: LayerStep, read: LayerStep, x: Tensor, state: State, x_prev: Tensor | None
    ) -> tuple[Distribution, State]:
        """`unroll` with functions in the place of `embedded` and of the layer's `forward`."""
        layer, recent = self.parts(state)
        before = self.before(x, x_prev)
        features, recent = embed(before, recent)
        h, layer = read(features, layer)
        return self.conditional(h, before), self.joined(layer, recent)

    def begin(self, batch_size: int, context: Context) -> State:
        """The layer's state before the first element; `None` for its own initial one."""
        refuse_context(context)
        return None

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        layer = self.begin(batch_size, context)
        recent = None if self.ngrams is None else self.ngrams.initial_state(batch_size)
        return self.joined(self.layer.initial_state(batch_size) if layer is None else layer, recent)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        layer, recent = self.parts(state)
        before = self.start(count_rows(layer)) if x_prev is None else symbol_before(x_prev, self.vocab_size)
        features, recent = self.embedded(before.unsqueeze(1), recent)
        h, layer = stepping(self.layer)(features.squeeze(1), layer)
        return self.conditional(h, before), self.joined(layer, recent)

    def prepare(self) -> Executor:
        return SymbolExecutor(self)

    def start(self, rows: int) -> Tensor:
        """(B,) start symbols."""
        return torch.full((rows,), self.vocab_size, device=device_of(self))

    def before(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        """The symbols before each element of x (B, T)."""
        return symbols_before(x, x_prev, self.vocab_size)

    def inputs(self, x: Tensor, x_prev: Tensor | None = None, recent: Tensor | None = None) -> Tensor:
        """Return the layer's input before each element of a chunk (B, T), (B, T, N)."""
        return self.embedded(self.before(x, x_prev), recent)[0]

    def embedded(self, symbols: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the layer reads for symbols (B, T), (B, T, N), and the last symbols after them."""
        features = self.vectors(symbols)
        if self.ngrams is not None:
            ngrams, recent = self.ngrams(symbols, recent)
            features = features + ngrams
        return dropout(features, self.embedding_dropout, self.training), recent

    def places(self, symbols: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the rows (B, T, K) of `all_vectors` that `embedded` adds up in evaluation, and the last symbols."""
        single = symbols.unsqueeze(2)
        if self.ngrams is None:
            return single, recent
        places, recent = self.ngrams.places(symbols, recent)
        return torch.cat([single, self.vocab_size + 1 + places], 2), recent

    def all_vectors(self) -> Tensor:
        """Return the vectors (R, N) of all symbols, of the start symbol, and of n-grams."""
        single = self.vectors(torch.arange(self.vocab_size + 1, device=device_of(self)))
        return torch.cat([single, *([] if self.ngrams is None else self.ngrams.tables_apart()[0])])

    def vectors(self, symbols: Tensor) -> Tensor:
        """E of single symbols, (..) to (.., N); the symbols themselves where the layer reads one-hot vectors."""
        assert self.embedding is not None
        vectors: Tensor = self.embedding(symbols)
        return vectors

    @property
    def reads_single_vectors(self) -> bool:
        """True if the layer reads one of V + 1 vectors at each step."""
        return self.ngrams is None and self.vectors(self.start(1)).is_floating_point()

    def conditional(self, h: Tensor, before: Tensor | None = None) -> Distribution:
        """p(x_t | x_{<t}) from h_t, (.., M), and the symbols before, (..), where the head reads them."""
        return Categorical(
            nn.functional.linear(dropout(h, self.dropout, self.training), self.output_weight(), self.bias_ho)
        )

    def output_weight(self) -> Tensor:
        """W_ho."""
        if self.weight_ho is not None:
            return self.weight_ho
        assert isinstance(self.embedding, nn.Embedding)
        return self.embedding.weight[: self.vocab_size]

    def parts(self, state: State) -> tuple[State, Tensor | None]:
        """The layer's state, and the last symbols of a model with n-grams."""
        return (state, None) if self.ngrams is None else (state["layer"], state["recent"])

    def joined(self, layer: State, recent: Tensor | None) -> State:
        """Invert `parts`."""
        return layer if self.ngrams is None else {"layer": layer, "recent": recent}
