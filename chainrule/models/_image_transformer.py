"""A Transformer over the pixels of an image in raster order."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Tensor, nn

from chainrule._executor import Executor
from chainrule.heads import Categorical
from chainrule.kernels._compiled import compiled_loops
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._cells import check_vocabulary
from chainrule.layers._pointwise import dropout
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, Serial, stepping
from chainrule.layers._transformer_stack import TransformerStack
from chainrule.models._conditioned import checked_labels
from chainrule.models._executors import compiled_blocks, saved_by
from chainrule.models._image_model import ImageModel
from chainrule.ranges import Layers, Probability, Size
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Rows
    from chainrule.kernels._compiled_transformer import Array


@final
class NeighbourEmbedding(SequenceLayer):
    r"""Add up embeddings of the neighbours of each element, of its place, and of a label.

    .. math:: y_t = E_1[x_{t-1}] + \sum_n E_n[x_{t-n}] + R_{i} + S_{j} + K_{k}

    n are the distances to the same channel of the pixels up to `radius` rows above, and up to `radius` columns to
    either side, that come before; see `chainrule.models.ImageTransformer`. The layer reads :math:`x_{t-1}`, integers
    in [0, V], V before the first. Its state is a dict: "label", (B,); "place", (B,), the number of elements read; and
    "recent", the last of them.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int,
        size: int,
        radius: int,
        num_classes: int | None,
        dropout: float,
    ):
        super().__init__()
        self.image_shape, self.levels, self.dropout = image_shape, levels, dropout
        channels, height, width = image_shape
        # How many rows above and columns to the left.
        above, aside = min(radius, height - 1), min(radius, width - 1)
        moves = [(up, left) for up in range(above + 1) for left in range(-aside, aside + 1) if (up, left) > (0, 0)]
        back = [(up * width + left) * channels for up, left in moves]
        self.neighbours = [(1, 0, 0)] + [
            (distance, *move)
            for distance, move in zip(back, moves, strict=True)
            if distance > 1  # at 1 it is the element before
        ]
        # A row for each symbol of each neighbour, and for what lies outside.
        self.embedding = nn.Embedding(len(self.neighbours) * (levels + 1), size)
        self.places = nn.ModuleList(nn.Embedding(count, size) for count in (height, width, channels) if count > 1)
        self.label = None if num_classes is None else nn.Embedding(num_classes, size)

    def reset_parameters(self) -> None:
        """Draw the weights."""
        nn.init.normal_(self.embedding.weight, std=len(self.neighbours) ** -0.5)
        for embedding in (*self.places, self.label):
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=0.5)

    @property
    def _kept(self) -> int:
        """Elements before the last one that the neighbours of the next may be."""
        return max(back for back, _, _ in self.neighbours) - 1

    def initial_state(self, batch_size: int, label: Tensor | None = None) -> State:
        device = self.embedding.weight.device
        recent = torch.full((batch_size, self._kept), self.levels, device=device)
        return {"label": label, "place": torch.zeros(batch_size, dtype=torch.long, device=device), "recent": recent}

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        check_vocabulary(x, self.levels, start=True)  # outside [0, V) the row would be another neighbour's
        state = self.initial_state(len(x)) if state is None else state
        past, time = torch.cat([state["recent"], x], 1), x.shape[1]
        offsets = torch.arange(time, device=x.device)
        places = state["place"].unsqueeze(1) + offsets
        back = torch.tensor([back for back, _, _ in self.neighbours], device=x.device)
        seen = past[:, self._kept + 1 + offsets.unsqueeze(1) - back]  # (B, T, N)
        seen = seen.masked_fill(~self.inside(places), self.levels)
        rows = seen + (self.levels + 1) * torch.arange(len(back), device=back.device)
        features = nn.functional.embedding_bag(rows.flatten(0, 1), self.embedding.weight, mode="sum")
        features = features.unflatten(0, x.shape)
        for embedding, index in zip(self.places, self._indices(places), strict=True):
            features = features + embedding(index)
        if self.label is not None:
            features = features + self.label(state["label"]).unsqueeze(1)
        after = {**state, "place": state["place"] + time, "recent": past[:, past.shape[1] - self._kept :]}
        return dropout(features, self.dropout, self.training), after

    def reads(self, length: int) -> Tensor:
        """Return the elements that each of the first places reads: (T, T) booleans, true at [t, s] for :math:`x_s`."""
        places = torch.arange(length, device="cpu")
        earlier = places.unsqueeze(1) - torch.tensor(self.neighbours, device="cpu")[:, 0]
        rows, columns = self.inside(places).nonzero(as_tuple=True)
        inputs = torch.zeros(length, length, dtype=torch.bool, device="cpu")
        inputs[rows, earlier[rows, columns]] = True
        return inputs

    def _indices(self, places: Tensor) -> list[Tensor]:
        """Return row, column and channel of places, without the axes of length 1."""
        channels, height, width = self.image_shape
        indices = (places // (width * channels), places // channels % width, places % channels)
        return [index for index, size in zip(indices, (height, width, channels), strict=True) if size > 1]

    def inside(self, places: Tensor) -> Tensor:
        """Return whether the N neighbours of each place lie in the image, (..., N)."""
        channels, _, width = self.image_shape
        _, up, left = torch.tensor(self.neighbours, device=places.device).unbind(1)
        places = places.unsqueeze(-1)
        column = places // channels % width - left
        return (places >= 1) & (places // (width * channels) >= up) & (column >= 0) & (column < width)


_ROWS, _LEAST_WINDOW = 3, 64  # of the usual window


@final
class ImageTransformer(ImageModel):
    r"""A causal Transformer over the T = H·W·C elements of an image (Parmar et al. 2018; Chen et al. 2020, ImageGPT).

    .. math:: h^{(0)}_t = E_1[x_{t-1}] + \sum_n E_n[x_{t-n}] + R_{i} + S_{j} + K_{k}, \qquad
        p(x_t \mid x_{<t}) = \mathrm{softmax}(W_{ho}\, \mathrm{norm}(h^{(L)}_t) + b_o)

    for the element of row i, column j and channel k. Besides the previous element, a place reads its neighbourhood,
    like a causal convolution of symbols: n are the distances to the same channel of the earlier pixels up to `radius`
    rows above and up to `radius` columns to either side. An additional symbol stands for places outside the image and
    for the element before the first. Each block of attention reads the last `window` elements (Parmar et al.: local
    attention), so L blocks reach L times as far.

    Args:
        image_shape: (C, H, W).
        levels: V; see `ImageModel`.
        model_size: D, a multiple of `num_heads`.
        num_layers: L, blocks.
        num_heads: query heads.
        num_kv_heads: key and value heads, a divisor of `num_heads`; `None` is `num_heads`.
        radius: r, rows above and columns to either side that a place reads directly.
        window: elements that each block reads; `None` is three rows of the image, or 64 if they are fewer.
        feed_forward_size: units of the feed-forward networks; `None` is 4·D.
        activation: "gelu", "relu" or "swiglu".
        dropout: probability of zeroing in training, of the input's features and of what each branch adds.
        num_classes: number of labels on which an image can be conditioned; see `ImageModel`.

    >>> model = ImageTransformer((1, 4, 4), levels=2, model_size=8, num_layers=2, num_heads=2)
    >>> x = model.sample(2, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([2, 1, 4, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        levels: int = 256,
        *,
        model_size: Size = 128,
        num_layers: Layers = 4,
        num_heads: Layers = 2,
        num_kv_heads: Layers | None = None,
        radius: Size = 3,
        window: Size | None = None,
        feed_forward_size: Size | None = None,
        activation: Literal["gelu", "relu", "swiglu"] = "gelu",
        dropout: Probability = 0.0,
        num_classes: int | None = None,
    ):
        super().__init__(image_shape, levels, num_classes)
        if window is None:
            window = min(max(_ROWS * self.image_shape[0] * self.image_shape[2], _LEAST_WINDOW), self.sequence_length)
        stack = TransformerStack(
            model_size, num_layers, num_heads, num_kv_heads=num_kv_heads, position=None, window=window,
            context_length=self.sequence_length, feed_forward_size=feed_forward_size, activation=activation,
            dropout=dropout,
        )  # fmt: skip
        inputs = NeighbourEmbedding(self.image_shape, levels, model_size, radius, num_classes, dropout)
        self.network = Serial(inputs, stack)
        self.output = nn.Linear(model_size, levels)
        if not self.output.weight.is_meta:
            inputs.reset_parameters()
            nn.init.normal_(self.output.weight, std=(3 * model_size) ** -0.5)
            nn.init.zeros_(self.output.bias)

    @property
    def inputs(self) -> NeighbourEmbedding:
        """Return the input of the blocks."""
        inputs, _ = self.network.layers
        assert isinstance(inputs, NeighbourEmbedding)
        return inputs

    @property
    def stack(self) -> TransformerStack:
        """The blocks."""
        _, stack = self.network.layers
        assert isinstance(stack, TransformerStack)
        return stack

    def visible_past(self, length: int) -> Tensor:
        reach = self.stack.reach
        if reach is None or reach >= length:
            return super().visible_past(length)
        read = torch.ones(length, length, dtype=torch.bool, device="cpu").tril().triu(1 - reach)
        return (read.float() @ self.inputs.reads(length).float()) > 0

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        """Return all conditionals, batch shape (B, C, H, W); `lengths` has no effect: conditionals read the past."""
        self.images.checked(x)
        state = (self._begin(len(x), context), None)
        logits = self.output(self.network(self._before(self.to_sequence(x).long(), None), state)[0])
        channels, _, width = self.image_shape
        return Categorical(logits.unflatten(1, (-1, width, channels)).permute(0, 3, 1, 2, 4))

    def _begin(self, batch_size: int, context: Tensor | None) -> State:
        return self.inputs.initial_state(batch_size, checked_labels(context, batch_size, self.num_classes))

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return self._begin(batch_size, context), self.stack.initial_state(batch_size)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        h, state = self.network(self._before(x.long(), x_prev), state)
        return Categorical(self.output(h)), state

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        return self._step(stepping(self.network), x_prev, state)

    def prepare(self) -> Executor:
        if self.training or not may_prepare(self):
            return Executor(self)
        return _ImageTransformerExecutor(self)

    def _step(self, advance: LayerStep, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        x_prev = torch.full_like(state[0]["place"], self.levels) if x_prev is None else x_prev.long()
        h, state = advance(x_prev, state)
        return Categorical(self.output(h)), state

    def _before(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        """Return the elements before each of x: `x_prev` or the start, then x without its last."""
        if x_prev is None:
            x_prev = torch.full_like(x[:, 0], self.levels)
        return torch.cat([x_prev.long().unsqueeze(1), x[:, :-1]], 1)


class _ImageTransformerExecutor(Executor):
    """A prepared Transformer, whose blocks compiled loops compute for a single image."""

    model: ImageTransformer

    def __init__(self, model: ImageTransformer):
        super().__init__(model, partial(model._step, model.network.prepare()))

    @property
    def saved(self) -> float:
        return saved_by(self.model, self.model.stack)

    def compiled_rows(self) -> "Rows | None":
        model, loops = self.model, compiled_loops(self.model.output.weight)
        if loops is None or (blocks := compiled_blocks(model.stack)) is None:
            return None

        def begin(place: State, x: "Array") -> tuple[Callable[["Array"], None], Callable[[], State]]:
            def read(symbols: "Array") -> None:
                nonlocal place
                before = torch.from_numpy(symbols)
                features, place = model.inputs.step(before.where(before >= 0, model.levels), place)
                x[:] = features.detach().numpy()

            return read, lambda: place

        def parts(state: State) -> tuple[State, State]:
            return state[1], state[0]

        def joined(layer: State, place: State) -> State:
            return place, layer

        return loops.StackRows(begin, blocks, model.output.weight, model.output.bias, parts, joined)
