"""Recurrences whose gates read the input alone, so that all time steps are computed at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels import enabled
from chainrule.kernels._bptt import wide_dtype
from chainrule.kernels._scan import associative_scan
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._packing import real_steps
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, check_features, checked_tensor, stepping
from chainrule.state import State


def linear_scan(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    r"""Run a linear recurrence without a nonlinearity between steps.

    .. math:: h_t = a_t \odot h_{t-1} + b_t

    All steps are computed at once, in O(log T) dependent operations (Blelloch 1990). b and h may have any sign, a may
    be 0, and products of :math:`|a_t| \le 1` cannot overflow. Derivatives of any order and `torch.func` work.

    Args:
        a: (B, T, ...), broadcast against b in every axis but T.
        b: (B, T, ...).
        initial: h_0, (B, ...).

    Returns:
        h of every step, (B, T, ...).

    >>> a, b = torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[1.0, -3.0, 0.0]])
    >>> linear_scan(a, b, initial=torch.tensor([4.0]))
    tensor([[ 3.0000, -1.5000, -0.7500]])
    """
    if enabled():
        return associative_scan(a, b, initial)
    h, steps = initial, [b[:, :0]]
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        steps.append(h.unsqueeze(1))
    return torch.cat(steps, 1)


class MinimalRecurrence(SequenceLayer, ABC):
    r"""A leaky integrator of M units; `MinGRU` and `MinLSTM` define its gate :math:`\lambda_t`.

    .. math::
        c_t &= W_c x_t + b_c \\
        h_t &= \lambda_t \odot h_{t-1} + (1 - \lambda_t) \odot c_t

    Neither :math:`\lambda_t` nor :math:`c_t` reads :math:`h_{t-1}`: the recurrence is linear in h, and `forward` runs
    it by a parallel scan (`_scan`). The candidate c keeps its sign; the form of Feng et al. (2024) that
    works with logarithms must make it positive.

    The state is h, (B, M), kept in float32 or wider.
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.candidate = nn.Linear(input_size, hidden_size)

    def reset_parameters(self) -> None:
        """Draw new weights with the variance of the input; gate biases keep the memory, others are zero."""
        for layer in self._linears():
            nn.init.normal_(layer.weight, std=self.input_size**-0.5)
            nn.init.zeros_(layer.bias)
        self._open_gates()

    @abstractmethod
    def _gates(self) -> list[nn.Linear]:
        """Return the gates' projections of x."""

    @abstractmethod
    def _open_gates(self) -> None:
        """Set the biases of the gates so that λ = σ(1) at x = 0 (Jozefowicz et al. 2015)."""

    @abstractmethod
    def _kept(self, gates: Sequence[Tensor]) -> Tensor:
        """Return the logit of λ from the pre-activations of the gates."""

    def initial_state(self, batch_size: int) -> Tensor:
        """Zeros."""
        weight, shape = self._linears()[0].weight, (batch_size, self.hidden_size)
        return torch.zeros(shape, dtype=wide_dtype(weight), device=weight.device)  # also where the weight is divided

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read a chunk; arguments as for `SequenceLayer.forward`.

        x: (B, T, N). Returns (B, T, M) and the state (B, M).
        """
        check_features(x, "BT", self.input_size)
        h = self.initial_state(len(x)) if state is None else checked_tensor(state, len(x), self.hidden_size)
        if not x.shape[1]:
            return x.new_zeros(len(x), 0, self.hidden_size), h
        real = real_steps(x, lengths)
        if real is not None:
            real = real.unsqueeze(2)
            x = x.masked_fill(~real, 0)
        *gates, candidate = [layer(x) for layer in self._linears()]
        decay, written = self._recurrence(gates, candidate, h.dtype)
        if real is not None:
            decay, written = decay.masked_fill(~real, 1), written.masked_fill(~real, 0)
        steps = linear_scan(decay, written, h)
        y = steps.to(candidate.dtype)
        return y if real is None else y.masked_fill(~real, 0), steps[:, -1].clone()

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Read one element of each row: x_t (B, N) and a state to y_t (B, M) and the next."""
        check_features(x_t, "B", self.input_size)
        return self._advance(
            [layer(x_t) for layer in self._linears()], checked_tensor(state, len(x_t), self.hidden_size)
        )

    def prepare(self) -> LayerStep:
        """Return a function equal to `step` that multiplies x once, by all weights side by side."""
        if not may_prepare(self):
            return stepping(self)
        with torch.no_grad():
            weight = torch.cat([layer.weight for layer in self._linears()])
            bias = torch.cat([layer.bias for layer in self._linears()])

        def step(x_t: Tensor, state: State) -> tuple[Tensor, Tensor]:
            return self._advance(nn.functional.linear(x_t, weight, bias).split(self.hidden_size, 1), state)

        return step

    def kept(self, x: Tensor) -> Tensor:
        r""":math:`\lambda` of each unit at each element of x, (B, T, N): (B, T, M)."""
        check_features(x, "BT", self.input_size)
        return torch.sigmoid(self._kept([gate(x) for gate in self._gates()]))

    def extra_repr(self) -> str:
        """Sizes of the input and of the state."""
        return f"{self.input_size}, {self.hidden_size}"

    def _advance(self, projected: Sequence[Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
        *gates, candidate = projected
        decay, written = self._recurrence(gates, candidate, h.dtype)
        h = torch.addcmul(written, decay, h)
        return h.to(candidate.dtype), h

    def _recurrence(self, gates: Sequence[Tensor], candidate: Tensor, wide: torch.dtype) -> tuple[Tensor, Tensor]:
        """λ and (1 − λ) c; 1 − λ is taken as σ(−logit), exact where λ is near 1."""
        logit = self._kept([gate.to(wide) for gate in gates])
        return torch.sigmoid(logit), torch.sigmoid(-logit) * candidate.to(wide)

    def _linears(self) -> list[nn.Linear]:
        return [*self._gates(), self.candidate]


class MinGRU(MinimalRecurrence):
    r"""The minGRU of Feng et al. (2024), "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201.

    .. math::
        z_t &= \sigma(W_z x_t + b_z) \\
        c_t &= W_c x_t + b_c \\
        h_t &= (1 - z_t) \odot h_{t-1} + z_t \odot c_t

    Args:
        input_size: N.
        hidden_size: M.

    >>> import torch
    >>> layer = MinGRU(3, 5)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.update = nn.Linear(input_size, hidden_size)
        self.reset_parameters()

    def _gates(self) -> list[nn.Linear]:
        return [self.update]

    def _open_gates(self) -> None:
        nn.init.constant_(self.update.bias, -1)

    def _kept(self, gates: Sequence[Tensor]) -> Tensor:
        (update,) = gates
        return -update


class MinLSTM(MinimalRecurrence):
    r"""The minLSTM of Feng et al. (2024), "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201.

    .. math::
        f_t &= \sigma(W_f x_t + b_f), \qquad i_t = \sigma(W_i x_t + b_i) \\
        c_t &= W_c x_t + b_c \\
        h_t &= \frac{f_t}{f_t + i_t} \odot h_{t-1} + \frac{i_t}{f_t + i_t} \odot c_t

    The shares are taken as :math:`\sigma(\pm(\log f_t - \log i_t))`: both gates may be closed to the last bit.

    Args:
        input_size: N.
        hidden_size: M.

    >>> import torch
    >>> layer = MinLSTM(3, 5)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.forget = nn.Linear(input_size, hidden_size)
        self.input = nn.Linear(input_size, hidden_size)
        self.reset_parameters()

    def _gates(self) -> list[nn.Linear]:
        return [self.forget, self.input]

    def _open_gates(self) -> None:
        nn.init.constant_(self.forget.bias, 1)
        nn.init.constant_(self.input.bias, -1)  # log σ(1) − log σ(−1) = 1

    def _kept(self, gates: Sequence[Tensor]) -> Tensor:
        forget, write = gates
        return nn.functional.logsigmoid(forget) - nn.functional.logsigmoid(write)
