"""Embeddings of a pixel's neighbourhood: what a Transformer over images reads before each element."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers._cells import check_vocabulary
from chainrule.layers._pointwise import dropout
from chainrule.layers._sequence_layer import SequenceLayer
from chainrule.state import State


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
