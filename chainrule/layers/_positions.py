"""Positions: vectors added to features, and rotations of queries and keys."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels._cuda_graphs import being_recorded
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._packing import real_steps
from chainrule.layers._sequence_layer import SequenceLayer, check_features
from chainrule.modes import widest
from chainrule.option_error import OptionError
from chainrule.state import State


class PositionEmbedding(SequenceLayer, ABC):
    r"""Add to each element a vector of its position, :math:`y_t = x_t + P_t`.

    The state is the number of elements that each row has read, (B,) integers.
    """

    model_size: int  # N

    @abstractmethod
    def vectors(self, positions: Tensor) -> Tensor:
        """P of integers (...), (..., N)."""

    @property
    @abstractmethod
    def _device(self) -> torch.device: ...

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        check_features(x, "BT", self.model_size)
        count = self.initial_state(len(x)) if state is None else state
        steps = torch.arange(x.shape[1], device=count.device)
        positions = steps if state is None else count.unsqueeze(1) + steps
        real = real_steps(x, lengths)
        if real is not None:  # padding has no position, and need not have one
            positions = positions.where(real.any(0) if state is None else real, 0)
        y = x + self.vectors(positions).to(x.dtype)
        if real is None or lengths is None:
            return y, count + x.shape[1]
        return y.masked_fill(~real.unsqueeze(2), 0), count + lengths.to(count)

    def initial_state(self, batch_size: int) -> State:
        return torch.zeros(batch_size, dtype=torch.long, device=self._device)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        check_features(x_t, "B", self.model_size)
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
            raise OptionError("model_size", f"sinusoidal positions need an even number of features, got {model_size}")
        self.model_size = model_size
        self.register_buffer("_frame", torch.empty(0), persistent=False)  # says where the layer is

    def vectors(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.model_size)

    @property
    def _device(self) -> torch.device:
        return self._frame.device


class LearnedPositions(PositionEmbedding):
    """Add a learned vector of each position, up to a fixed number of positions.

    Args:
        positions: how many there are.
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
        self.model_size, self.std = model_size, std
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=self.std)

    def vectors(self, positions: Tensor) -> Tensor:
        # A step that goes on without looking is not recorded: it would read past the end.
        known = values_are_known(positions) or being_recorded(positions)
        if positions.numel() and known and int(positions.max()) >= len(self.weight):
            raise ValueError(
                f"x: learned positions end after {len(self.weight)} elements, got {int(positions.max()) + 1}: "
                "shorten it, or use rotary positions"
            )
        return nn.functional.embedding(positions, self.weight)

    @property
    def _device(self) -> torch.device:
        return self.weight.device


BASE = 10_000.0


def sinusoids(positions: Tensor, size: int, *, base: float = BASE) -> Tensor:
    r"""Positions (...) as sines and cosines of falling frequency, (..., N) float64 (Vaswani et al. 2017).

    .. math:: \mathrm{PE}(p, 2i) = \sin(p / 10000^{2i/N}), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p / 10000^{2i/N})
    """
    if widest(positions.device) != torch.float64:
        return sinusoids(positions.cpu(), size, base=base).to(positions.device, widest(positions.device))
    angles = _angles(positions, size, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def grid_sinusoids(rows: int, columns: int, size: int, *, base: float = 100.0) -> Tensor:
    """Sinusoids of the places of a grid, (rows · columns, N) float64, row by row.

    Half of the features encode the row, half the column; those that are left over, where N is no multiple of 4, are 0.
    The base is lower than for texts, as a side has few places.

    >>> grid_sinusoids(1, 2, 5)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000, 0.0000],
            [0.0000, 1.0000, 0.8415, 0.5403, 0.0000]], dtype=torch.float64)
    """
    half = size // 4 * 2
    vectors = torch.zeros(rows, columns, size, dtype=torch.float64)
    vectors[:, :, :half] = sinusoids(torch.arange(rows), half, base=base).unsqueeze(1)
    vectors[:, :, half : 2 * half] = sinusoids(torch.arange(columns), half, base=base)
    return vectors.flatten(0, 1)


def rotations(positions: Tensor, size: int, like: Tensor, *, base: float = BASE) -> Tensor:
    r"""Return the turns :math:`e^{i \theta}`, :math:`\theta = p / 10000^{2i/d}`, of pair i at position p, (..., d/2).

    Angles are computed in float64: a stream's positions grow without end, and float32 would lose the angle. The result
    is complex, in the precision of `like`, at least float32; under `torch.export` real and imaginary parts, (..., 2).
    """
    if widest(positions.device) != torch.float64:
        return rotations(positions.cpu(), size, like, base=base).to(positions.device)
    angles = _angles(positions, size, base)
    if torch.compiler.is_exporting():  # ONNX has no complex numbers
        real = torch.float64 if like.dtype == torch.float64 else torch.float32
        return torch.stack([angles.cos(), angles.sin()], -1).to(real)
    dtype = torch.complex128 if like.dtype == torch.float64 else torch.complex64
    return torch.polar(torch.ones_like(angles), angles).to(dtype)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    r"""Turn each pair of neighbouring features by its angle (Su et al. 2021, RoPE).

    .. math:: (x_{2i}, x_{2i+1}) \mapsto (x_{2i} \cos\theta - x_{2i+1} \sin\theta,\;
        x_{2i} \sin\theta + x_{2i+1} \cos\theta)

    A rotated query times a rotated key depends on their distance, not on their positions. A pair is a complex number,
    and the turn one product: a single pass over memory, and one back.

    >>> x = torch.tensor([1.0, 0.0])
    >>> rotate(x, rotations(torch.tensor(0), 2, x))
    tensor([1., 0.])
    """
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if not turns.is_complex():
        (cos, sin), (a, b) = turns.unbind(-1), wide.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
    pairs = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def distance_slopes(num_heads: int, device: torch.device | None = None) -> Tensor:
    r"""ALiBi's slope of each head, :math:`m_h = 2^{-8h/H}`, (H,), float64 (Press, Smith and Lewis 2022).

    A key r elements before the query loses :math:`m_h r` of its score.

    >>> distance_slopes(2).tolist()
    [0.0625, 0.00390625]
    """
    heads = torch.arange(1, num_heads + 1, dtype=torch.float64, device="cpu")
    slopes = torch.exp2(-8 * heads / num_heads)
    return slopes if device is None else slopes.to(device, widest(device))


def _angles(positions: Tensor, size: int, base: float) -> Tensor:
    """(..., N/2) float64."""
    pairs = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    return positions.unsqueeze(-1) * base ** (-pairs / size)
