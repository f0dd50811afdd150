"""WaveNet: dilated causal convolutions over a long past."""

from typing import Annotated, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel
from chainrule._ranges import Range, check_sizes
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads._discretized_logistic_mixture import bin_centres
from chainrule.kernels._executors import WaveNetExecutor
from chainrule.layers._cells import symbol_before, symbols_before
from chainrule.layers._dilated_stack import DilatedStack
from chainrule.layers._linear import Linear
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._sequence_layer import stepping
from chainrule.models._labels import checked_labels
from chainrule.state import State


@final
class WaveNet(AutoregressiveModel):
    r"""Sequences of quantised samples, as of sound, by dilated causal convolutions (van den Oord et al. 2016, WaveNet).

    .. math:: h^{(0)}_t = E[x_{t-1}], \quad g^{(1)}, \ldots, g^{(L)} = \mathrm{stack}(h^{(0)}), \quad
        s_t = W_2\,\mathrm{relu}(W_1\, \mathrm{relu}(\sum_l S^{(l)} g^{(l)}_t))

    The stack is `chainrule.layers.DilatedStack`. Dilations double from layer to layer, 1, 2, 4, ..., and start again at
    1 with every block. A conditional sees the last :math:`1 + \sum_l (k-1) d_l` elements. The first element follows a
    start symbol. A label adds a bias to every layer.

    The V scores s parametrise a `Categorical`. With `components`, s are the parameters of a
    `DiscretizedLogisticMixture` in their place (van den Oord et al. 2018, Parallel WaveNet), which costs the same for
    256 levels and for 65,536: E is then linear in the element, and the means are counted from the element before,

    .. math:: h^{(0)}_t = w\,\tilde x_{t-1} + b, \qquad \mu_{tk} = \tilde x_{t-1} + m_{tk},

    where :math:`\tilde x` is the middle of the element's bin in [−1, 1], and 0 before the first.

    Args:
        levels: V; elements are integers in [0, V), 256 for 8-bit μ-law.
        channels: N features between the layers.
        blocks: how many times the dilations start at 1.
        layers_per_block: dilations 1, 2, ..., 2^(n-1).
        kernel_size: k taps of each convolution.
        skip_channels: features in which the layers' outputs are summed.
        components: of a mixture of logistics instead of a categorical distribution.
        num_classes: labels that a sequence may be conditioned on, as context (B,) of integers; `None` for none.

    Raises:
        ValueError: a size is out of range.

    >>> model = WaveNet(levels=16, channels=8, blocks=2, layers_per_block=3, skip_channels=8)
    >>> model.receptive_field
    15
    >>> x = model.sample(2, length=40, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([2, 40]), torch.Size([2]))
    >>> WaveNet(levels=65536, channels=8, layers_per_block=3, components=10)(x)
    DiscretizedLogisticMixture(batch_shape=(2, 40), K=10)
    """

    def __init__(
        self,
        levels: int = 256,
        channels: Annotated[int, Range(1, 1 << 12)] = 48,
        blocks: Annotated[int, Range(1, 64)] = 2,
        layers_per_block: Annotated[int, Range(1, 20)] = 9,
        kernel_size: Annotated[int, Range(2, 16)] = 2,
        skip_channels: Annotated[int, Range(1, 1 << 14)] = 128,
        *,
        components: Annotated[int, Range(1, 1 << 10)] | None = None,
        num_classes: int | None = None,
    ):
        super().__init__()
        check_sizes(channels=channels, blocks=blocks, layers_per_block=layers_per_block, skip_channels=skip_channels)
        check_sizes(components=components, num_classes=num_classes)
        if levels < 2 or kernel_size < 2:
            name, value = ("levels", levels) if levels < 2 else ("kernel_size", kernel_size)
            raise ValueError(f"{name}: expected at least 2, got {value}")
        self.levels = levels
        self.components = components
        self.num_classes = num_classes
        if components is None:
            self.embedding = nn.Embedding(levels + 1, channels)  # the start symbol is the last
        else:
            self.input = nn.Parameter(torch.empty(3, channels))  # w, b, and the input before the first element
        self.stack = DilatedStack(channels, [2**layer for layer in range(layers_per_block)] * blocks, kernel_size)
        layers = blocks * layers_per_block
        self.skip = Linear(layers * channels, skip_channels)
        self.hidden = Linear(skip_channels, skip_channels)
        self.output = Linear(skip_channels, levels if components is None else 3 * components)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, layers * 2 * channels)
        self._draw_weights()

    def _draw_weights(self) -> None:
        """Draw the weights so that products keep the variance of their input, biases are zero, labels do little.

        A mixture begins with means and scales that are spread over the levels.
        """
        for linear in (self.skip, self.hidden, self.output):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        if self.components is None:
            nn.init.normal_(self.embedding.weight)
        else:
            nn.init.normal_(self.input)
            nn.init.normal_(self.output.weight, std=0.1 * self.output.in_features**-0.5)
            _, means, log_scales = self.output.bias.data.chunk(3)
            means.copy_(torch.linspace(-0.1, 0.1, self.components) if self.components > 1 else torch.zeros(1))
            log_scales.copy_(torch.linspace(-5.0, -1.0, self.components) if self.components > 1 else -torch.ones(1) * 3)
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    @property
    def receptive_field(self) -> int:
        """The number of earlier elements that a conditional sees."""
        return 1 + sum(self.stack.pasts)

    @property
    def reach(self) -> int:
        """The receptive field."""
        return self.receptive_field

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Distribution:
        return self.unroll(zero_past_ends(x, lengths), self.initial_state(len(x), context))[0]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return self.stack.initial_state(batch_size, self._label_bias(context, batch_size))

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        symbols = self._before(x, x_prev)
        gated, state = self.stack(self.embedded(symbols), state)
        return self._conditional(gated, symbols), state

    def features(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Units of the last hidden layer, which each element is predicted from: (B, T) elements to (B, T, N)."""
        gated, _ = self.stack(self.embedded(self._before(x, None)), self.initial_state(len(x), context))
        return self._hidden(gated)

    def _before(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        """Return the symbols before each element, (B, T)."""
        x_prev = None if x_prev is None else x_prev.long()
        return symbols_before(x.long(), x_prev, self.levels, bounded=self.components is None)

    def _hidden(self, gated: Tensor) -> Tensor:
        return self.hidden(self.skip(gated).relu()).relu()

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        symbols = self._start(len(state["end"])) if x_prev is None else symbol_before(x_prev, self.levels)
        gated, state = stepping(self.stack)(self.embedded(symbols), state)
        return self._conditional(gated, symbols), state

    def prepare(self) -> WaveNetExecutor:
        return WaveNetExecutor(self)

    def embedded(self, symbols: Tensor) -> Tensor:
        """Inputs of the first layer for elements or the start symbol, integers (..) to (.., N)."""
        if self.components is None:
            return self.embedding(symbols)
        weight, bias, start = self.input.unbind()
        values = (self._centres(symbols) * weight + bias).to(weight.dtype)
        return torch.where((symbols == self.levels).unsqueeze(-1), start, values)

    def _start(self, rows: int) -> Tensor:
        return torch.full((rows,), self.levels, device=self.stack.residual.device)

    def _conditional(self, gated: Tensor, symbols: Tensor) -> Distribution:
        """p(x_t | ...) from the outputs of all layers, (.., L·N), and the element before, (..)."""
        return self.head(self.output(self._hidden(gated)), symbols)

    def head(self, scores: Tensor, symbols: Tensor) -> Distribution:
        """Return the distribution of scores (..), after the elements (..)."""
        if self.components is None:
            return Categorical(scores)
        logits, means, log_scales = scores.chunk(3, -1)
        centres = self._centres(symbols).masked_fill((symbols == self.levels).unsqueeze(-1), 0)
        return DiscretizedLogisticMixture(logits, centres + means, log_scales, self.levels)

    def _centres(self, symbols: Tensor) -> Tensor:
        """(..) to (.., 1), never in half precision, in which neighbouring levels would be one."""
        wide = torch.promote_types(self.stack.residual.dtype, torch.float32)
        return bin_centres(symbols.to(wide), self.levels).unsqueeze(-1)

    def _label_bias(self, label: Tensor | None, batch_size: int) -> Tensor | None:
        """(B, L, 2N); `None` where there are no labels."""
        label = checked_labels(label, batch_size, self.num_classes)
        if self.label_bias is None:
            return None
        return self.label_bias(label).unflatten(1, (len(self.stack.layers), -1))
