"""WaveNet: dilated causal convolutions over a long past."""

from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule.base import AutoregressiveModel, Step
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads.logistic_bins import bin_centres
from chainrule.layers.causal_conv1d import CausalConv1d
from chainrule.layers.gate import gate
from chainrule.models.wavenet_queues import Queues
from chainrule.models.wavenet_steps import WaveNetSteps
from chainrule.ranges import Range
from chainrule.state import State


class WaveNet(AutoregressiveModel):
    r"""Sequences of quantised samples, as of sound, by dilated causal convolutions (van den Oord et al. 2016, WaveNet).

    .. math:: h^{(0)}_t = E[x_{t-1}], \quad a^{(l)} = W^{(l)} *_{d_l} h^{(l-1)}, \quad
        g^{(l)} = \tanh(a^{(l)}_1) \odot \sigma(a^{(l)}_2)

        h^{(l)} = h^{(l-1)} + R^{(l)} g^{(l)}, \qquad
        s_t = W_2\,\mathrm{relu}(W_1\, \mathrm{relu}(\sum_l S^{(l)} g^{(l)}_t))

    Dilations double from layer to layer, 1, 2, 4, ..., and begin anew with every block. A conditional sees the last
    :math:`1 + \sum_l (k-1) d_l` elements. Before the first stands a start symbol. A label adds a bias to every a.

    The V scores s are those of a `Categorical`. With `components`, s are the parameters of a
    `DiscretizedLogisticMixture` in their place (van den Oord et al. 2018, Parallel WaveNet), which costs the same for
    256 levels and for 65,536: E is then linear in the element, and the means are counted from the element before,

    .. math:: h^{(0)}_t = w\,\tilde x_{t-1} + b, \qquad \mu_{tk} = \tilde x_{t-1} + m_{tk},

    where :math:`\tilde x` is the middle of the element's bin in [−1, 1], and 0 before the first.

    Args:
        levels: V; elements are integers in [0, V), 256 for 8-bit μ-law.
        channels: N features between the layers.
        blocks: how many times the dilations begin anew.
        layers_per_block: dilations 1, 2, ..., 2^(n-1).
        kernel_size: k taps of each convolution.
        skip_channels: features in which the layers' outputs are summed.
        components: of a mixture of logistics in place of a categorical distribution.
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
        sizes = {"channels": channels, "blocks": blocks, "layers_per_block": layers_per_block}
        optional = {"components": components, "num_classes": num_classes}
        given = {name: size for name, size in optional.items() if size is not None}
        for name, size in {**sizes, "skip_channels": skip_channels, **given}.items():
            if size < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        if levels < 2 or kernel_size < 2:
            name, value = ("levels", levels) if levels < 2 else ("kernel_size", kernel_size)
            raise ValueError(f"{name}: expected at least 2, got {value}")
        layers = blocks * layers_per_block
        self.levels = levels
        self.components = components
        self.num_classes = num_classes
        if components is None:
            self.embedding = nn.Embedding(levels + 1, channels)  # the start symbol is the last
        else:
            self.input = nn.Parameter(torch.empty(3, channels))  # w, b, and what stands before the first element
        self.layers = nn.ModuleList(
            CausalConv1d(channels, 2 * channels, kernel_size, 2 ** (index % layers_per_block))
            for index in range(layers)
        )
        self.residual = nn.Parameter(torch.empty(layers - 1, channels, channels))  # of the last layer none is read
        self.skip = nn.Linear(layers * channels, skip_channels)
        self.hidden = nn.Linear(skip_channels, skip_channels)
        self.output = nn.Linear(skip_channels, levels if components is None else 3 * components)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, layers * 2 * channels)
        self.queues = Queues([layer.past for layer in self.convolutions])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: products keep the variance of their input, biases are zero, labels do little.

        A mixture begins with means and scales that are spread over the levels.
        """
        for layer in self.convolutions:
            layer.reset_parameters()
        nn.init.normal_(self.residual, std=self.residual.shape[2] ** -0.5)
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
    def convolutions(self) -> list[CausalConv1d]:
        """The dilated convolutions, from the input on."""
        return cast(list[CausalConv1d], list(self.layers))

    @property
    def receptive_field(self) -> int:
        """How many earlier elements a conditional sees."""
        return 1 + sum(self.queues.lengths)

    def visible_past(self, length: int) -> Tensor:
        return super().visible_past(length).triu(-self.receptive_field)

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Distribution:
        symbols = self._inputs(x, None)
        return self._conditional(self._read(symbols, self._label_bias(context, len(x)))[0], symbols)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        like = self.residual
        past = like.new_zeros(batch_size, sum(self.queues.lengths), like.shape[-1])
        end = torch.zeros(batch_size, dtype=torch.long, device=like.device)
        return {"label_bias": self._label_bias(context, batch_size), "past": past, "end": end}

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        symbols = self._inputs(x, x_prev)
        gated, past = self._read(symbols, state["label_bias"], self.queues.of(state))
        return self._conditional(gated, symbols), {**state, "past": past, "end": torch.zeros_like(state["end"])}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        if x_prev is None:
            x_prev = torch.full_like(state["end"], self.levels)
        symbols = x_prev.long()
        gated, past = self._read(symbols.unsqueeze(1), state["label_bias"], self.queues.of(state))
        conditional = self._conditional(gated.squeeze(1), symbols)
        return conditional, {**state, "past": past, "end": torch.zeros_like(state["end"])}

    def stepper(self) -> Step:
        parts = ("step", "embedded", "_read", "_conditional")
        if any(getattr(type(self), part) is not getattr(WaveNet, part) for part in parts):
            return self.step  # a subclass changed what a step is
        with torch.no_grad():
            return WaveNetSteps(
                queues=self.queues,
                dilations=[layer.dilation for layer in self.convolutions],
                embedded=self.embedded(torch.arange(self.levels + 1, device=self.residual.device)),
                taps=torch.stack([layer.weight.permute(2, 1, 0) for layer in self.convolutions]),
                bias=torch.stack([cast(Tensor, layer.bias) for layer in self.convolutions]),
                residual=self.residual,
                linears=[(linear.weight, linear.bias) for linear in (self.skip, self.hidden, self.output)],
                head=self._head,
            )

    def embedded(self, symbols: Tensor) -> Tensor:
        """What the first layer reads for elements or the start symbol (..), integers: (.., N)."""
        if self.components is None:
            return self.embedding(symbols)
        weight, bias, start = self.input.unbind()
        return torch.where((symbols == self.levels).unsqueeze(-1), start, self._centres(symbols) * weight + bias)

    def _inputs(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        """(B, T) symbols: what stands before each element."""
        if x_prev is None:
            x_prev = torch.full_like(x[:, 0], self.levels, dtype=torch.long)
        return torch.cat([x_prev.unsqueeze(1).long(), x[:, :-1].long()], 1)

    def _read(self, symbols: Tensor, label_bias: Tensor | None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What the layers find in a chunk, (B, T, L·N), and their queues after it; no past is none of zeros."""
        h, time = self.embedded(symbols), symbols.shape[1]
        queues = [None] * len(self.layers) if past is None else past.split(self.queues.lengths, 1)
        gated, after = [], []
        for index, (layer, queue) in enumerate(zip(self.convolutions, queues, strict=True)):
            rows = nn.functional.pad(h, (0, 0, layer.past, 0)) if queue is None else torch.cat([queue, h], 1)
            a = layer.convolve(rows)
            if label_bias is not None:
                a = a + label_bias[:, index : index + 1]
            gated.append(gate(a, dim=2))
            if index < len(self.residual):
                h = h + gated[-1] @ self.residual[index]
            if queue is not None:
                after.append(rows[:, time:])
        return torch.cat(gated, 2), torch.cat(after, 1) if after else h

    def _conditional(self, gated: Tensor, symbols: Tensor) -> Distribution:
        """p(x_t | ...) from what all layers found, (.., L·N), and the element before, (..)."""
        return self._head(self.output(self.hidden(self.skip(gated).relu()).relu()), symbols)

    def _head(self, scores: Tensor, symbols: Tensor) -> Distribution:
        if self.components is None:
            return Categorical(scores)
        logits, means, log_scales = scores.chunk(3, -1)
        centres = self._centres(symbols).masked_fill((symbols == self.levels).unsqueeze(-1), 0)
        return DiscretizedLogisticMixture(logits, centres + means, log_scales, self.levels)

    def _centres(self, symbols: Tensor) -> Tensor:
        """(..) to (.., 1), never in half precision, in which neighbouring levels would be one."""
        return bin_centres(symbols.to(self.residual.dtype), self.levels).unsqueeze(-1)

    def _label_bias(self, label: Tensor | None, batch_size: int) -> Tensor | None:
        """(B, L, 2N); `None` where there are no labels."""
        if self.label_bias is None:
            if label is not None:
                raise ValueError("context: this model has no labels; leave it None, or give the model num_classes")
            return None
        if not isinstance(label, Tensor) or label.shape != (batch_size,) or label.is_floating_point():
            got = f"shape {tuple(label.shape)} of {label.dtype}" if isinstance(label, Tensor) else label
            raise ValueError(f"context: expected {batch_size} labels, integers of shape ({batch_size},), got {got}")
        classes = self.label_bias.num_embeddings
        if batch_size and not 0 <= int(label.min()) <= int(label.max()) < classes:
            raise ValueError(
                f"context: expected labels in [0, {classes}), got {int(label.min())} to {int(label.max())}"
            )
        return self.label_bias(label).view(batch_size, len(self.layers), -1)
