"""Layers that run along a sequence (a chunk, a step, a state), and combinators of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast, final

import torch
from torch import Tensor, nn

from chainrule.kernels._transforms import is_plain
from chainrule.layers._packing import zero_past_ends
from chainrule.state import State

LayerStep: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]
LOOK_UP_LIMIT = 2**25  # elements of a table that a prepared step may hold: 128 MiB in float32


def stepping(layer: nn.Module) -> LayerStep:
    """Return the step of a layer inside another one: its `step`, or a call where hooks must run."""
    if is_plain(layer):
        return cast(LayerStep, layer.step)

    def called(x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = layer(x_t.unsqueeze(1), state)
        return y.squeeze(1), state

    return called


def check_features(x: Tensor, axes: str, size: int) -> None:
    """Raise ValueError unless x are features with the named axes, "BT" say, before their own of the given size."""
    if x.dim() != len(axes) + 1 or x.shape[-1] != size:
        raise ValueError(f"x: expected features ({', '.join([*axes, str(size)])}), got shape {tuple(x.shape)}")


def checked_tensor(state: State, *shape: int) -> Tensor:
    """Return a state that is one tensor of a shape; raises ValueError for any other."""
    if not isinstance(state, Tensor) or state.shape != shape:
        got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise ValueError(f"state: expected a tensor of shape {shape}, got {got}: begin with initial_state")
    return state


class SequenceLayer(nn.Module, ABC):
    r"""A causal layer over (B, T, N): the same function for a chunk and for one element.

    .. math:: (y_t, s_t) = f(x_t, s_{t-1})

    `forward` reads a chunk from a state in one pass, `step` reads one element; both return the state that continues.
    Any chunking of the input gives the same output and the same last state.
    """

    @abstractmethod
    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a chunk of T elements.

        Args:
            x: (B, T, N) features.
            state: from `initial_state`, `forward` or `step`; `None` is `initial_state(B)`.
            lengths: (B,) real elements of each row, 0 allowed. Outputs after a row's end are zero, and the returned
                state is the one after its last real element.

        Returns:
            (B, T, M) outputs, and the state after the chunk.
        """

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first element: a tree of tensors, batch first."""

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one element of each row; this version is `forward` of a chunk of one.

        Args:
            x_t: (B, N) features, or (B,) symbols.
            state: from `initial_state`, `forward` or `step`.

        Returns:
            (B, M) outputs, and the new state.
        """
        y, state = self(x_t.unsqueeze(1), state)
        return y.squeeze(1), state

    def prepare(self) -> LayerStep:
        """Return a function equal to `step` in evaluation while the weights do not change.

        A layer that can compute something from its weights alone overrides this and computes it once, where
        `chainrule.kernels` may replace the layer; this version is `step` itself. Generation and serving call it.
        """
        return self.step

    def prepare_for(self, vectors: Tensor) -> LayerStep:
        """Return `prepare` of elements that are each one of V vectors, (V, N): a step that reads integers (B,)."""
        step = self.prepare()
        return lambda symbols, state: step(vectors.index_select(0, symbols), state)

    @property
    def reach(self) -> int | None:
        """Number of elements that an output can depend on, its own included; `None` if unlimited."""
        return None


@final
class Map(SequenceLayer):
    r"""A module applied to each element on its own: :math:`y_t = f(x_t)`.

    Args:
        module: f, of features in the last dimension: `torch.nn.Linear`, a norm, an activation, an embedding of
            integers (B, T).

    >>> layer = Map(nn.Linear(3, 4))
    >>> layer(torch.zeros(2, 5, 3))[0].shape, layer.step(torch.zeros(2, 3), None)[0].shape
    (torch.Size([2, 5, 4]), torch.Size([2, 4]))
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        return zero_past_ends(self.module(zero_past_ends(x, lengths)), lengths), None

    def initial_state(self, batch_size: int) -> State:
        """None: nothing is kept of the past."""
        return None

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self.module(x_t), None


class _Several(SequenceLayer):
    """Layers whose states are held side by side, one entry a layer."""

    def __init__(self, *layers: SequenceLayer):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @property
    def parts(self) -> list[SequenceLayer]:
        """The layers, in order."""
        return cast(list[SequenceLayer], list(self.layers))

    def initial_state(self, batch_size: int) -> State:
        """Return the states of the layers, a tuple."""
        return tuple(layer.initial_state(batch_size) for layer in self.parts)

    def _states(self, state: State) -> State:
        return [None] * len(self.layers) if state is None else state


@final
class Serial(_Several):
    r"""Layers one after another: :math:`y = f_L(\cdots f_1(x))`, without any layer the identity.

    Args:
        layers: each reads the outputs of the previous one.

    >>> from chainrule.layers import GRU, CausalConv1d
    >>> layer = Serial(CausalConv1d(3, 4, 2), Map(nn.Tanh()), GRU(4, 5))
    >>> y, state = layer(torch.zeros(2, 6, 3), lengths=torch.tensor([6, 2]))
    >>> y.shape, layer.step(torch.zeros(2, 3), state)[0].shape
    (torch.Size([2, 6, 5]), torch.Size([2, 5]))
    """

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        x, after = zero_past_ends(x, lengths), []
        for layer, before in zip(self.parts, self._states(state), strict=True):
            x, new = layer(x, before, lengths)
            after.append(new)
        return x, tuple(after)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return _one_after_another([stepping(layer) for layer in self.parts], x_t, state)

    def prepare(self) -> LayerStep:
        if not is_plain(self):
            return stepping(self)
        steps = [layer.prepare() for layer in self.parts]
        return lambda x_t, state: _one_after_another(steps, x_t, state)


def _one_after_another(steps: list[LayerStep], x_t: Tensor, state: State) -> tuple[Tensor, State]:
    after = []
    for step, before in zip(steps, state, strict=True):
        x_t, new = step(x_t, before)
        after.append(new)
    return x_t, tuple(after)


@final
class Parallel(_Several):
    r"""Layers that read the same input, their outputs concatenated: :math:`y_t = [f_1(x)_t, \ldots, f_L(x)_t]`.

    Args:
        layers: at least one.

    >>> from chainrule.layers import GRU
    >>> layer = Parallel(GRU(3, 4), Map(nn.Identity()))
    >>> layer(torch.zeros(2, 6, 3))[0].shape
    torch.Size([2, 6, 7])
    """

    def __init__(self, *layers: SequenceLayer):
        if not layers:
            raise ValueError("layers: expected at least one, got none: use Map(torch.nn.Identity())")
        super().__init__(*layers)

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        x = zero_past_ends(x, lengths)
        results = [layer(x, before, lengths) for layer, before in zip(self.parts, self._states(state), strict=True)]
        return _side_by_side(results)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return _side_by_side([stepping(layer)(x_t, before) for layer, before in zip(self.parts, state, strict=True)])

    def prepare(self) -> LayerStep:
        if not is_plain(self):
            return stepping(self)
        steps = [layer.prepare() for layer in self.parts]
        return lambda x_t, state: _side_by_side([step(x_t, before) for step, before in zip(steps, state, strict=True)])


def _side_by_side(results: list[tuple[Tensor, State]]) -> tuple[Tensor, State]:
    outputs, states = zip(*results, strict=True)
    return torch.cat(outputs, -1), states


@final
class Residual(SequenceLayer):
    r"""A layer around which its input is added: :math:`y = x + f(x)`.

    Args:
        layer: f, with equal numbers of input and output features.

    >>> from chainrule.layers import GRU
    >>> Residual(GRU(3, 3))(torch.zeros(2, 6, 3))[0].shape
    torch.Size([2, 6, 3])
    """

    def __init__(self, layer: SequenceLayer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        x = zero_past_ends(x, lengths)
        y, state = self.layer(x, state, lengths)
        return x + y, state

    def initial_state(self, batch_size: int) -> State:
        """Return the state of f."""
        return self.layer.initial_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y_t, state = stepping(self.layer)(x_t, state)
        return x_t + y_t, state

    def prepare(self) -> LayerStep:
        if not is_plain(self):
            return stepping(self)
        inner = self.layer.prepare()

        def step(x_t: Tensor, state: State) -> tuple[Tensor, State]:
            y_t, state = inner(x_t, state)
            return x_t + y_t, state

        return step
