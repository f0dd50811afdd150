"""WaveNet: dilated causal convolutions over a long past."""

from typing import Annotated, final

from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._ranges import check_sizes
from chainrule.layers._cells import symbols_before
from chainrule.layers._dilated_stack import DilatedStack, LevelEmbedding, LevelHead
from chainrule.models._conditioned import checked_labels
from chainrule.models._executors import WaveNetExecutor
from chainrule.models._symbol_model import SymbolModel
from chainrule.option_error import OptionError
from chainrule.ranges import Range
from chainrule.state import State


@final
class WaveNet(SymbolModel):
    r"""Sequences of quantised samples, as of sound, by dilated causal convolutions (van den Oord et al. 2016, WaveNet).

    .. math:: h^{(0)}_t = E[x_{t-1}], \quad g^{(1)}, \ldots, g^{(L)} = \mathrm{stack}(h^{(0)}), \quad
        s_t = W_2\,\mathrm{relu}(W_1\, \mathrm{relu}(\sum_l S^{(l)} g^{(l)}_t))

    The stack is `DilatedStack`. Dilations double from layer to layer, 1, 2, 4, ..., and start again at
    1 with every block. A conditional sees the last :math:`1 + \sum_l (k-1) d_l` elements. The first element follows a
    start symbol. A label adds a bias to every layer.

    The V scores s parametrise a `Categorical`. With `components`, s are the parameters of a
    `DiscretizedLogisticMixture` in their place (van den Oord et al. 2018, Parallel WaveNet), which costs the same for
    256 levels and for 65,536: E is then linear in the element, and the means are counted from the element before,

    .. math:: h^{(0)}_t = w\,\tilde x_{t-1} + b, \qquad \mu_{tk} = \tilde x_{t-1} + m_{tk},

    where :math:`\tilde x` is the middle of the element's bin in [−1, 1], and 0 before the first.

    The compiled loops that draw one long sequence store the weights as float16 if that loses nothing, which is faster.
    To use it, round all parameters of two or more dimensions first: `parameter.copy_(parameter.half().float())`. The
    rounded model approximates the original one; its `forward`, `step` and samples agree exactly.

    Args:
        levels: V; elements are integers in [0, V), 256 for 8-bit μ-law.
        channels: N features between the layers.
        blocks: how many times the dilations start at 1.
        layers_per_block: dilations 1, 2, ..., 2^(n-1).
        kernel_size: k taps of each convolution.
        skip_channels: features in which the layers' outputs are summed.
        components: components of a mixture of logistics, which replaces the categorical distribution.
        num_classes: labels that a sequence may be conditioned on, as context (B,) of integers; `None` for none.

    >>> import torch
    >>> model = WaveNet(levels=16, channels=8, blocks=2, layers_per_block=3, skip_channels=8)
    >>> model.receptive_field
    15
    >>> x = model.sample(2, length=40, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([2, 40]), torch.Size([2]))
    >>> WaveNet(levels=65536, channels=8, layers_per_block=3, components=10)(x)
    DiscretizedLogisticMixture(batch_shape=(2, 40), K=10)
    """

    embedding: nn.Embedding | LevelEmbedding

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
        super().__init__(levels)
        check_sizes(channels=channels, blocks=blocks, layers_per_block=layers_per_block, skip_channels=skip_channels)
        check_sizes(components=components, num_classes=num_classes)
        if levels < 2 or kernel_size < 2:
            name, value = ("levels", levels) if levels < 2 else ("kernel_size", kernel_size)
            raise OptionError(name, f"expected at least 2, got {value}")
        self.components, self.num_classes, layers = components, num_classes, blocks * layers_per_block
        self.embedding = LevelEmbedding(levels, channels) if components else nn.Embedding(levels + 1, channels)
        self.stack = DilatedStack(channels, [2**layer for layer in range(layers_per_block)] * blocks, kernel_size)
        self.head = LevelHead(layers * channels, skip_channels, levels, components)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, layers * 2 * channels)
        self.head.reset_parameters()
        self.embedding.reset_parameters()
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    @property
    def layer(self) -> DilatedStack:
        return self.stack

    @property
    def receptive_field(self) -> int:
        """The number of earlier elements that a conditional sees."""
        return self.stack.reach

    def begin(self, batch_size: int, context: Tensor | None) -> State:
        label, bias = checked_labels(context, batch_size, self.num_classes), None
        if self.label_bias is not None:
            bias = self.label_bias(label).unflatten(1, (len(self.stack.layers), -1))  # (B, L, 2N)
        return self.stack.initial_state(batch_size, bias)

    def before(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        x_prev = None if x_prev is None else x_prev.long()
        return symbols_before(x.long(), x_prev, self.vocab_size, bounded=self.components is None)

    def features(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Units of the last hidden layer, which each element is predicted from: (B, T) elements to (B, T, N)."""
        return self.head.hidden_units(super().features(x, context, lengths))

    def conditional(self, h: Tensor, before: Tensor | None = None) -> Distribution:
        distribution: Distribution = self.head(h, before)
        return distribution

    def prepare(self) -> WaveNetExecutor:
        return WaveNetExecutor(self)
