"""Vectors of absolute positions, added to features."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from chainrule.base import length_mask
from chainrule.layers.positions import sinusoids
from chainrule.layers.sequence_layer import SequenceLayer
from chainrule.ranges import check_sizes
from chainrule.state import State


class PositionEmbedding(SequenceLayer, ABC):
    r"""Add to each element a vector of its position, :math:`y_t = x_t + P_t`.

    The state is the number of elements that each row has read, (B,) integers.
    """

    @abstractmethod
    def vectors(self, positions: Tensor) -> Tensor:
        """P of integers (...), (..., N)."""

    @property
    @abstractmethod
    def _device(self) -> torch.device: ...

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        count = self.initial_state(len(x)) if state is None else state
        steps = torch.arange(x.shape[1], device=count.device)
        positions = steps if state is None else count.unsqueeze(1) + steps
        y = x + self.vectors(positions).to(x.dtype)
        if lengths is None:
            return y, count + x.shape[1]
        return y.masked_fill(~length_mask(lengths, x.shape[1]).unsqueeze(2), 0), count + lengths

    def initial_state(self, batch_size: int) -> State:
        return torch.zeros(batch_size, dtype=torch.long, device=self._device)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return x_t + self.vectors(state).to(x_t.dtype), state + 1


class SinusoidalPositions(PositionEmbedding):
    """Add the fixed sinusoids of Vaswani et al. 2017, whatever the position.

    Args:
        model_size: N, even.

    >>> layer = SinusoidalPositions(2)
    >>> layer(torch.zeros(1, 2, 2))[0]
    tensor([[[0.0000, 1.0000],
             [0.8415, 0.5403]]])
    """

    _frame: Tensor

    def __init__(self, model_size: int):
        super().__init__()
        if model_size < 2 or model_size % 2:
            raise ValueError(f"model_size: sinusoidal positions need an even number of features, got {model_size}")
        self.model_size = model_size
        self.register_buffer("_frame", torch.empty(0), persistent=False)  # says where the layer is

    def vectors(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.model_size)

    @property
    def _device(self) -> torch.device:
        return self._frame.device


class LearnedPositions(PositionEmbedding):
    """Add a learned vector of each position, of which there are so many and no more.

    Args:
        positions: that there are.
        model_size: N.
        std: of the first vectors.

    >>> layer = LearnedPositions(4, model_size=2)
    >>> layer(torch.zeros(1, 5, 2))
    Traceback (most recent call last):
    ...
    ValueError: x: learned positions end after 4 elements, got 5: shorten it, or use rotary positions
    """

    def __init__(self, positions: int, model_size: int, *, std: float = 0.02):
        super().__init__()
        check_sizes(positions=positions, model_size=model_size)
        self.weight = nn.Parameter(torch.empty(positions, model_size))
        self.std = std
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=self.std)

    def vectors(self, positions: Tensor) -> Tensor:
        if positions.numel() and int(positions.max()) >= len(self.weight):
            raise ValueError(
                f"x: learned positions end after {len(self.weight)} elements, got {int(positions.max()) + 1}: "
                "shorten it, or use rotary positions"
            )
        return nn.functional.embedding(positions, self.weight)

    @property
    def _device(self) -> torch.device:
        return self.weight.device
