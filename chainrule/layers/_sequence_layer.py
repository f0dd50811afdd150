"""Protocol of layers that run along a sequence: a chunk, a step, a state."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast

from torch import Tensor, nn

from chainrule.kernels._plain_modules import is_plain
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
