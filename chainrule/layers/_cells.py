"""The recurrent cells, one step of a stack of them, and the projection of its input for all elements at once."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from chainrule.kernels._bptt import known_activation, last, wide_dtype
from chainrule.kernels._transforms import values_are_known
from chainrule.state import State

Recurrent: TypeAlias = Any  # its module imports this one


Known = Sequence[Tensor] | None  # activations that a first pass kept, for all steps
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda a: a,
}


def activation(function: str, a: Tensor, value: Tensor | None = None) -> Tensor:
    """f(a), or its known value with the derivatives of f at a."""
    return FUNCTIONS[function](a) if value is None else known_activation(function, a, value)


def pre_activation(projected: Tensor, h: Tensor, weight_hh: Tensor) -> Tensor:
    """Compute W_ih x + b + W_hh h: the product in the type of `projected`, the sum in the type of h."""
    if projected.dtype == h.dtype == weight_hh.dtype:
        return torch.addmm(projected, h, weight_hh.t())
    return projected.to(h.dtype) + _times(weight_hh, h, projected.dtype)


def _times(weight: Tensor, h: Tensor, low: torch.dtype) -> Tensor:
    return (h.to(low) @ weight.to(low).t()).to(h.dtype)


def rnn_cell(
    projected: Tensor, weight_hh: Tensor, h: Tensor, nonlinearity: str, value: Tensor | None = None
) -> tuple[Tensor]:
    """h_t = f(W_ih x_t + b + W_hh h_{t-1})."""
    return (activation(nonlinearity, pre_activation(projected, h, weight_hh), value),)


LSTM_GATES = {"input": "sigmoid", "forget": "sigmoid", "candidate": "tanh", "output": "sigmoid"}  # in this order


def lstm_cell(a: Sequence[Tensor], c: Tensor, activations: Known = None) -> tuple[Tensor, Tensor]:
    """h and c from the pre-activations of the gates i, f, g, o and the cell before."""
    values = activations or (None,) * 4
    i, f, g, o = (activation(*gate) for gate in zip(LSTM_GATES.values(), a, values, strict=True))
    c = f * c + i * g
    return o * torch.tanh(c), c


def gru_cell(
    projected: Tensor,
    weight_hh: Tensor,
    bias_hn: Tensor | None,
    h: Tensor,
    known_rz: Tensor | None = None,
    known_n: Tensor | None = None,
) -> tuple[Tensor]:
    """h_t = (1 − z) n + z h_{t-1}; the reset gate is after the product with W_hn where there is `bias_hn`."""
    gates = 2 * h.shape[1]
    p_rz, p_n = projected[:, :gates], projected[:, gates:]
    if bias_hn is not None:
        product = _times(weight_hh, h, projected.dtype)
        q = product[:, gates:] + bias_hn
        return (gru_reset_after(p_rz + product[:, :gates], p_n, q, h, known_rz, known_n),)
    r, z = activation("sigmoid", pre_activation(p_rz, h, weight_hh[:gates]), known_rz).chunk(2, 1)
    return (gru_mean(z, pre_activation(p_n, r * h, weight_hh[gates:]), h, known_n),)


def gru_reset_after(
    a_rz: Tensor, p_n: Tensor, q: Tensor, h: Tensor, known_rz: Tensor | None = None, known_n: Tensor | None = None
) -> Tensor:
    """h_t from the pre-activations of r and z, p_n = W_in x_t + b_in and q = W_hn h_{t-1} + b_hn."""
    r, z = activation("sigmoid", a_rz, known_rz).chunk(2, -1)
    return gru_mean(z, p_n + r * q, h, known_n)


def gru_mean(z: Tensor, a_n: Tensor, h: Tensor, known_n: Tensor | None = None) -> Tensor:
    """h_t = (1 − z) n + z h_{t-1}, from z and the pre-activation of n."""
    return (1 - z) * activation("tanh", a_n, known_n) + z * h


def over_steps(
    cell: Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]],
    projected: Tensor,
    state: Sequence[Tensor],
    sizes: list[int],
    activations: Known = None,
) -> tuple[Tensor, ...]:
    """Run a cell of (projections, state, known activations) over all steps of one layer in one direction.

    It returns h of every step (R, M), then each part of the state after a row's last step, (B, M); see
    `chainrule.kernels._bptt` for the flat layout (R, G·M) and the `sizes` of steps.
    """
    by_step = zip(*(part.split(sizes) for part in activations), strict=True) if activations else [()] * len(sizes)
    parts, steps = tuple(part.to(wide_dtype(projected)) for part in state), []
    for p_t, known_t in zip(projected.split(sizes), by_step, strict=True):
        parts = cell(p_t, [part[: len(p_t)] for part in parts], known_t)
        steps.append(parts)
    flat = [torch.cat(part) for part in zip(*steps, strict=True)]
    finals = (last(first, part, sizes).to(first.dtype) for first, part in zip(state, flat, strict=True))
    return flat[0].to(projected.dtype), *finals


Layers = list[tuple[Tensor, ...]]


class StackedCells:
    """The cells of a `Recurrent`, step by step.

    Under autocast, weights are converted here and not at every step. Where no training follows, a processor keeps them
    column by column, which it multiplies with one row a fifth faster.
    """

    def __init__(self, recurrent: Recurrent, *, training: bool | None = None):
        self._cell, self._has_cell = recurrent.cell, recurrent.has_cell
        self._dropout = recurrent.dropout if (recurrent.training if training is None else training) else 0.0
        self._layers = []
        for weights in recurrent.all_weights:
            weight_ih, *others = map(multiplied if training is None else _by_columns, weights)
            self._layers.append((weight_ih, recurrent.input_bias(others), others))

    def project(self, x: Tensor, first: int = 0, *, bias: bool = True) -> Tensor:
        """W_ih x + b of the lowest layer, (..., G·M), of its inputs from `first` on, (..., N'), or of integers (R,)."""
        weight, offset, _ = self._layers[0]
        if x.is_floating_point() and x.shape[-1] < weight.shape[1]:
            weight = weight[:, first : first + x.shape[-1]]
        return project(x, weight, offset if bias else None)

    def advance(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the top layer's h, (B, M), and the new state; the lowest layer reads `projected`, (B, G·M)."""
        layers = self.step(projected, self.layers_of(state))
        return layers[-1][0], self.state_of(layers)

    def step(self, projected: Tensor, layers: Layers) -> Layers:
        """Take a step with the parts of the state layer by layer, h first."""
        new: Layers = []
        for (weight_ih, bias, weights), parts in zip(self._layers, layers, strict=True):
            if new:
                below = new[-1][0]
                if self._dropout:
                    below = nn.functional.dropout(below, self._dropout)
                projected = nn.functional.linear(below, weight_ih, bias)
            new.append(self._cell(projected, weights, parts))
        return new

    def layers_of(self, state: State) -> Layers:
        """Return a state of the stack, layer by layer."""
        if not self._has_cell:
            return [(h,) for h in state.unbind(1)]
        h, c = state
        return list(zip(h.unbind(1), c.unbind(1), strict=True))

    def state_of(self, layers: Layers) -> State:
        """Invert `layers_of`."""
        if len(layers) == 1:
            parts = tuple(part.unsqueeze(1) for part in layers[0])
        else:
            parts = tuple(torch.stack(part, 1) for part in zip(*layers, strict=True))
        return parts if self._has_cell else parts[0]


def multiplied(weight: Tensor) -> Tensor:
    """Return a weight in the type in which matrices are multiplied here."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) and weight.dim() > 1 else weight


def _by_columns(weight: Tensor) -> Tensor:
    weight = multiplied(weight)
    return weight.t().contiguous().t() if weight.dim() == 2 and weight.device.type == "cpu" else weight


def symbols_of(x: Any) -> Tensor:
    """Symbols in the type that indexes a table; `ValueError` for other types."""
    if not isinstance(x, Tensor):
        remedy = "pad it, and give lengths" if isinstance(x, PackedSequence) else "make it one with torch.as_tensor"
        raise ValueError(f"x: expected a tensor, got {type(x).__name__}: {remedy}")
    if x.dtype == torch.bool or x.is_floating_point() or x.is_complex():
        raise ValueError(f"x: expected integers that number symbols, got {x.dtype}: convert them with x.long()")
    return x.long()


def check_vocabulary(symbols: Tensor, count: int, name: str = "x", *, start: bool = False) -> Tensor:
    """Return the symbols; `ValueError` for one outside [0, count), or with `start` [0, count].

    They are looked at on a processor alone, as a GPU would have to be waited for, and where `values_are_known`.
    """
    if symbols.numel() and symbols.device.type == "cpu" and values_are_known(symbols):
        least, greatest = map(int, symbols.aminmax())
        if least < 0 or greatest >= count + start:
            raise ValueError(
                f"{name}: expected symbols in [0, {count}), got {least if least < 0 else greatest}: "
                "mask padding before, or give the model its lengths"
            )
    return symbols


def symbols_before(x: Any, x_prev: Tensor | None, start: int, *, bounded: bool = True) -> Tensor:
    """Return the symbols before each of x, (B, T): `x_prev` (B,), or the start symbol, then x without its last."""
    x = symbols_of(x)
    if x.dim() != 2:
        raise ValueError(f"x: expected symbols (B, T), got shape {tuple(x.shape)}")
    x_prev = x.new_full((len(x),), start) if x_prev is None else symbols_of(x_prev)
    before = torch.cat([x_prev.unsqueeze(1), x[:, :-1]], 1)[:, : x.shape[1]]  # T may be 0
    return check_vocabulary(before, start, start=True) if bounded else before


def symbol_before(x_prev: Any, start: int) -> Tensor:
    """Return the symbols (B,) before the next ones, as `symbols_before` takes them."""
    return check_vocabulary(symbols_of(x_prev), start, "x_prev", start=True)


def project(x: Tensor, weight_ih: Tensor, bias: Tensor | None) -> Tensor:
    """W_ih x + b, (R, G·M).

    x: (R, N) real features, or (R,) integers in [0, N), indices of one-hot vectors: their product with W_ih is a
    look-up of its columns, and is done as one.
    """
    if x.is_floating_point():
        return nn.functional.linear(x, weight_ih, bias)
    # Fewer elements than symbols, as in a step: read their columns alone. A graph for every batch size has one form.
    if torch.compiler.is_exporting() or len(x) < weight_ih.shape[1]:
        columns = weight_ih.index_select(1, x).t()
        return columns if bias is None else columns + bias
    table = weight_ih.t() if bias is None else weight_ih.t() + bias  # (N, G·M)
    rows = nn.functional.embedding(x, table)
    if torch.is_autocast_enabled(x.device.type):  # rows, not the table: its gradient is summed in its own type
        rows = rows.to(torch.get_autocast_dtype(x.device.type))
    return rows
