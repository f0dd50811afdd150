"""WaveNet's layers: gated, dilated causal convolutions, the embedding of levels, and the head that predicts one."""

from collections.abc import Sequence
from itertools import accumulate
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._ranges import check_sizes
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads._logistic_mixtures import bin_centres, bounded_log_scales
from chainrule.kernels._cached_steps import PreparedDilatedStack
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._packing import last_before_ends, zero_past_ends
from chainrule.layers._pointwise import gate
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, check_features, checked_tensor, stepping
from chainrule.state import State


@final
class CausalConv1d(SequenceLayer):
    r"""A causal, dilated convolution over time.

    .. math:: y_t = b + \sum_{i=0}^{k-1} W_i \, x_{t-(k-1-i)d}

    Elements before the first are zero. The weight has the shape and order of `torch.nn.Conv1d`. The state holds the
    last (k - 1)d elements, oldest first, (B, (k - 1)d, N).

    Args:
        in_channels: N.
        out_channels: M.
        kernel_size: k taps, the last of them at the present element.
        dilation: d steps from tap to tap.
        bias: whether b is added.

    >>> layer = CausalConv1d(3, 5, kernel_size=2, dilation=4)
    >>> y, state = layer(torch.zeros(2, 10, 3))
    >>> y.shape, state.shape
    (torch.Size([2, 10, 5]), torch.Size([2, 4, 3]))
    """

    is_closed = True  # see `ResidualBlock`

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 2, dilation: int = 1, *, bias: bool = True
    ):
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, dilation=dilation)
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights with the variance of the input; the bias is zero."""
        nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def past(self) -> int:
        """(k - 1)d, how many elements before the present one are read."""
        return (self.weight.shape[2] - 1) * self.dilation

    def initial_state(self, batch_size: int) -> Tensor:
        """Zeros, (B, (k - 1)d, N)."""
        return self.weight.new_zeros(batch_size, self.past, self.weight.shape[1])

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        size = self.weight.shape[1]
        check_features(x, "BT", size)
        x = zero_past_ends(x, lengths)
        if state is None:
            rows = nn.functional.pad(x, (0, 0, self.past, 0))
        else:
            rows = torch.cat([checked_tensor(state, len(x), self.past, size), x], 1)
        y = self._sum(rows, self._matrix())
        return zero_past_ends(y, lengths), last_before_ends(rows, self.past, lengths)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        check_features(x_t, "B", self.weight.shape[1])
        state = checked_tensor(state, len(x_t), self.past, self.weight.shape[1])
        return self._step(x_t, state, self._matrix())

    def prepare(self) -> LayerStep:
        if not may_prepare(self):
            return stepping(self)
        matrix = self._matrix().detach()
        return lambda x_t, state: self._step(x_t, state, matrix)

    def _matrix(self) -> Tensor:
        """Return the taps side by side, (M, k·N)."""
        return self.weight.transpose(1, 2).flatten(1)

    def _sum(self, rows: Tensor, matrix: Tensor) -> Tensor:
        """(B, (k-1)d + T, N), the past and the present side by side, to (B, T, M)."""
        time, past = rows.shape[1] - self.past, self.past
        taps = [rows[:, start : start + time] for start in range(0, past + 1, self.dilation)]
        return nn.functional.linear(torch.cat(taps, 2), matrix, self.bias)

    def _step(self, x_t: Tensor, state: Tensor, matrix: Tensor) -> tuple[Tensor, State]:
        rows = torch.cat([state, x_t.unsqueeze(1)], 1)
        return self._sum(rows, matrix).squeeze(1), rows[:, 1:]


@final
class DilatedStack(SequenceLayer):
    r"""L gated causal convolutions, each with a residual connection to the next (van den Oord et al. 2016, WaveNet).

    .. math:: a^{(l)} = W^{(l)} *_{d_l} h^{(l-1)} + e^{(l)}, \quad
        g^{(l)} = \tanh(a^{(l)}_1) \odot \sigma(a^{(l)}_2), \quad h^{(l)} = h^{(l-1)} + R^{(l)} g^{(l)}

    The output is :math:`[g^{(1)}, \ldots, g^{(L)}]`, (B, T, L·N), for skip connections; e is a bias of each row, which
    `initial_state` takes, zero by default.

    The state is a dict: "bias"; "past", (B, R, N), in which layer l has a region of :math:`n_l + c` rows, and in it a
    queue of its last :math:`n_l = (k-1) d_l` inputs, oldest first, from row "end", (B,), on. A prepared step writes
    behind the queues; without room to grow, c = 0, the queues lie side by side.

    Args:
        channels: N.
        dilations: d of each layer.
        kernel_size: k taps.

    >>> stack = DilatedStack(8, dilations=[1, 2, 4])
    >>> y, state = stack(torch.zeros(2, 10, 8))
    >>> y.shape, state["past"].shape, stack.step(torch.zeros(2, 8), state)[0].shape
    (torch.Size([2, 10, 24]), torch.Size([2, 7, 8]), torch.Size([2, 24]))
    """

    def __init__(self, channels: int, dilations: Sequence[int], kernel_size: int = 2):
        super().__init__()
        self.layers = nn.ModuleList(
            CausalConv1d(channels, 2 * channels, kernel_size, dilation) for dilation in dilations
        )
        count = len(dilations) - 1  # none after the last layer
        self.residual = nn.Parameter(torch.empty(count, channels, channels), requires_grad=count > 0)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights so that products keep the variance of their input; biases are zero."""
        for layer in self.convolutions:
            layer.reset_parameters()
        nn.init.normal_(self.residual, std=self.residual.shape[2] ** -0.5)

    @property
    def convolutions(self) -> list[CausalConv1d]:
        """The dilated convolutions, from the input on."""
        return cast(list[CausalConv1d], list(self.layers))

    @property
    def pasts(self) -> list[int]:
        """n of each layer."""
        return [layer.past for layer in self.convolutions]

    @property
    def reach(self) -> int:
        return 1 + sum(self.pasts)

    def starts(self, room: int) -> list[int]:
        """Return the row at which each layer's region begins if c = `room`, then the number of rows."""
        return list(accumulate((past + room for past in self.pasts), initial=0))

    def initial_state(self, batch_size: int, bias: Tensor | None = None) -> State:
        """Zeros before the first element, and e (B, L, 2N)."""
        like = self.residual
        past = like.new_zeros(batch_size, sum(self.pasts), like.shape[-1])
        return {"bias": bias, "past": past, "end": torch.zeros(batch_size, dtype=torch.long, device=like.device)}

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        check_features(x, "BT", self.residual.shape[-1])
        h, state = x, self.initial_state(len(x)) if state is None else state
        bias, outputs, after = state["bias"], [], []
        for index, (layer, queue) in enumerate(zip(self.convolutions, self.queues(state), strict=True)):
            a, queue = layer(h, queue, lengths)
            if bias is not None:
                a = a + bias[:, index : index + 1]
            outputs.append(gate(a, dim=2))
            after.append(queue)
            if index < len(self.residual):
                h = h + outputs[-1] @ self.residual[index]
        end = torch.zeros_like(state["end"])
        return zero_past_ends(torch.cat(outputs, 2), lengths), {"bias": bias, "past": torch.cat(after, 1), "end": end}

    def prepare(self) -> LayerStep:
        return self.prepare_for(None)

    def prepare_for(self, vectors: Tensor | None, linears: Sequence[nn.Linear] = ()) -> LayerStep:
        """Return a prepared step that reads integers (B,), where vectors (V, N) are given, or (B, N).

        linears: applied to the output with ReLU between, in the same arrays; none by default.
        """
        if may_prepare(self, *linears):
            return PreparedDilatedStack(self, vectors, linears)

        def step(x_t: Tensor, state: State) -> tuple[Tensor, State]:
            y, state = self.step(x_t if vectors is None else vectors[x_t], state)
            for index, layer in enumerate(linears):
                y = layer(y.relu() if index else y)
            return y, state

        return step

    def queues(self, state: State) -> list[Tensor]:
        """Return the queue of each layer, (B, n, N), wherever it is in each row of the state."""
        past, end = state["past"], state["end"]
        room = (past.shape[1] - sum(self.pasts)) // len(self.pasts)
        if room:
            starts = zip(self.starts(room), self.pasts, strict=False)
            rows = torch.cat([torch.arange(start, start + past_l, device=past.device) for start, past_l in starts])
            past = past.gather(1, (rows + end.unsqueeze(1)).unsqueeze(2).expand(-1, -1, past.shape[2]))
        return list(past.split(self.pasts, 1))


@final
class LevelEmbedding(nn.Module):
    r"""Linear embedding of levels in [0, V): :math:`w \tilde x + b`; a separate vector for V, the start symbol."""

    def __init__(self, levels: int, size: int):
        super().__init__()
        self.levels = levels
        self.weight = nn.Parameter(torch.empty(3, size))  # w, b, and the vector of the start symbol

    def reset_parameters(self) -> None:
        """Draw the vectors."""
        nn.init.normal_(self.weight)

    def forward(self, symbols: Tensor) -> Tensor:
        """Integers (..) to (.., N)."""
        weight, bias, start = self.weight.unbind()
        values = (level_centres(symbols, self.levels, weight.dtype) * weight + bias).to(weight.dtype)
        return torch.where((symbols == self.levels).unsqueeze(-1), start, values)


@final
class LevelHead(nn.Module):
    r"""Features to the distribution of a level: :math:`s = W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(S g))`.

    s are V scores; with K `components` they are logits, offsets and log-scales of a mixture of logistics, whose means
    are counted from the middle of the level before, or from 0.
    """

    def __init__(self, size: int, hidden_size: int, levels: int, components: int | None = None):
        super().__init__()
        self.levels, self.components = levels, components
        self.skip, self.hidden = nn.Linear(size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 3 * components if components else levels)

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers, with a ReLU between."""
        return [self.skip, self.hidden, self.output]

    def reset_parameters(self) -> None:
        """Draw weights that keep the variance of their input; a mixture begins spread over the levels."""
        for layer in self.linears:
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)
        if self.components is not None:
            self.output.weight.data.mul_(0.1)
            _, offsets, log_scales = self.output.bias.data.chunk(3)
            several = self.components > 1
            offsets.copy_(torch.linspace(-0.1, 0.1, self.components) if several else torch.zeros(1))
            log_scales.copy_(torch.linspace(-5.0, -1.0, self.components) if several else -torch.ones(1) * 3)

    def hidden_units(self, features: Tensor) -> Tensor:
        """Units of the last hidden layer."""
        units: Tensor = self.hidden(self.skip(features).relu()).relu()
        return units

    def forward(self, features: Tensor, before: Tensor) -> Distribution:
        """The distribution after the levels (..), from features (.., N)."""
        return self.distribution(self.output(self.hidden_units(features)), before)

    def distribution(self, scores: Tensor, before: Tensor) -> Distribution:
        """The distribution with the scores s after the levels (..)."""
        if self.components is None:
            return Categorical(scores)
        logits, offsets, log_scales = scores.chunk(3, -1)
        centres = level_centres(before, self.levels, self.output.weight.dtype)
        centres = centres.masked_fill((before == self.levels).unsqueeze(-1), 0)
        log_scales = bounded_log_scales(log_scales, 2 / self.levels)
        return DiscretizedLogisticMixture(logits, centres + offsets, log_scales, self.levels)


def level_centres(symbols: Tensor, levels: int, dtype: torch.dtype) -> Tensor:
    """(..) to (.., 1), never in half precision, in which neighbouring levels would be one."""
    return bin_centres(symbols.to(torch.promote_types(dtype, torch.float32)), levels).unsqueeze(-1)
