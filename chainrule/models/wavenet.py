"""WaveNet: dilated causal convolutions over a long past."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Step
from chainrule.heads import Categorical
from chainrule.layers.causal_conv1d import CausalConv1d
from chainrule.layers.gate import gate
from chainrule.state import State


class WaveNet(AutoregressiveModel):
    r"""Sequences of quantised samples, as of sound, by dilated causal convolutions (van den Oord et al. 2016, WaveNet).

    .. math:: h^{(0)}_t = E[x_{t-1}], \quad a^{(l)} = W^{(l)} *_{d_l} h^{(l-1)}, \quad
        g^{(l)} = \tanh(a^{(l)}_1) \odot \sigma(a^{(l)}_2)

        h^{(l)} = h^{(l-1)} + R^{(l)} g^{(l)}, \qquad
        p(x_t \mid x_{<t}, c) = \mathrm{softmax}(W_2\,\mathrm{relu}(W_1\,
        \mathrm{relu}(\sum_l S^{(l)} g^{(l)}_t)))

    Dilations double from layer to layer, 1, 2, 4, ..., and begin anew with every block. A conditional sees the last
    :math:`1 + \sum_l (k-1) d_l` elements. Before the first stands a start symbol. A label adds a bias to every a.

    Args:
        levels: V; elements are integers in [0, V), 256 for 8-bit μ-law.
        channels: N features between the layers.
        blocks: how many times the dilations begin anew.
        layers_per_block: dilations 1, 2, ..., 2^(n-1).
        kernel_size: k taps of each convolution.
        skip_channels: features in which the layers' outputs are summed.
        num_classes: labels that a sequence may be conditioned on, as context (B,) of integers; `None` for none.

    Raises:
        ValueError: a size is out of range.

    >>> model = WaveNet(levels=16, channels=8, blocks=2, layers_per_block=3, skip_channels=8)
    >>> model.receptive_field
    15
    >>> x = model.sample(2, length=40, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model.log_prob(x).shape
    (torch.Size([2, 40]), torch.Size([2]))
    """

    def __init__(
        self,
        levels: int = 256,
        channels: int = 64,
        blocks: int = 2,
        layers_per_block: int = 10,
        kernel_size: int = 2,
        skip_channels: int = 256,
        *,
        num_classes: int | None = None,
    ):
        super().__init__()
        sizes = {"channels": channels, "blocks": blocks, "layers_per_block": layers_per_block}
        for name, size in {**sizes, "skip_channels": skip_channels, "num_classes": num_classes or 1}.items():
            if size < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        if levels < 2 or kernel_size < 2:
            name, value = ("levels", levels) if levels < 2 else ("kernel_size", kernel_size)
            raise ValueError(f"{name}: expected at least 2, got {value}")
        layers = blocks * layers_per_block
        self.levels = levels
        self.num_classes = num_classes
        self.embedding = nn.Embedding(levels + 1, channels)  # the start symbol is the last
        self.layers = nn.ModuleList(
            CausalConv1d(channels, 2 * channels, kernel_size, 2 ** (index % layers_per_block))
            for index in range(layers)
        )
        self.residual = nn.Parameter(torch.empty(layers - 1, channels, channels))  # of the last layer none is read
        self.skip = nn.Linear(layers * channels, skip_channels)
        self.hidden = nn.Linear(skip_channels, skip_channels)
        self.output = nn.Linear(skip_channels, levels)
        self.label_bias = None if num_classes is None else nn.Embedding(num_classes, layers * 2 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: products keep the variance of their input, biases are zero, labels do little."""
        for layer in self.convolutions:
            layer.reset_parameters()
        nn.init.normal_(self.residual, std=self.residual.shape[2] ** -0.5)
        for linear in (self.skip, self.hidden, self.output):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        if self.label_bias is not None:
            nn.init.normal_(self.label_bias.weight, std=0.1)

    @property
    def convolutions(self) -> list[CausalConv1d]:
        """The dilated convolutions, from the input on."""
        return cast(list[CausalConv1d], list(self.layers))

    @property
    def receptive_field(self) -> int:
        """How many earlier elements a conditional sees."""
        return 1 + sum(layer.past for layer in self.convolutions)

    def visible_past(self, length: int) -> Tensor:
        return super().visible_past(length).triu(-self.receptive_field)

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        return self._read(x, None, self._label_bias(context, len(x)), [None] * len(self.layers))[0]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        queues = [layer.initial_state(batch_size) for layer in self.convolutions]
        return {"label_bias": self._label_bias(context, batch_size), "queues": queues}

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        conditionals, queues = self._read(x, x_prev, state["label_bias"], state["queues"])
        return conditionals, {**state, "queues": queues}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        return self._prepared()(x_prev, state)

    def stepper(self) -> Step:
        if type(self).step is not WaveNet.step:
            return self.step  # a subclass changed what a step is
        with torch.no_grad():
            return self._prepared()

    def _read(
        self, x: Tensor, x_prev: Tensor | None, label_bias: Tensor, queues: list[list[Tensor]] | list[None]
    ) -> tuple[Categorical, list[list[Tensor]]]:
        """A chunk in one pass, and the queues after it."""
        if x_prev is None:
            x_prev = torch.full_like(x[:, 0], self.levels, dtype=torch.long)
        h = self.embedding(torch.cat([x_prev.unsqueeze(1).long(), x[:, :-1].long()], 1))
        gated, after = [], []
        for index, (layer, queue) in enumerate(zip(self.convolutions, queues, strict=True)):
            a, queue = layer(h, queue)
            gated.append(gate(a + label_bias[:, index : index + 1], dim=2))
            if index < len(self.residual):
                h = h + gated[-1] @ self.residual[index]
            after.append(queue)
        return Categorical(self._scores(torch.cat(gated, 2))), after

    def _prepared(self) -> Callable[[Tensor | None, State], tuple[Categorical, State]]:
        """A step, with the weights laid out for it: the taps of all layers in the past are one product."""
        layers, residual = self.convolutions, self.residual.unbind(0)
        taps = torch.stack([layer.weight.permute(2, 1, 0).flatten(0, 1) for layer in layers])  # (L, k·N, 2N)
        bias = torch.stack([cast(Tensor, layer.bias) for layer in layers]).unsqueeze(1)
        inputs = self.embedding.embedding_dim
        past, present = taps[:, :-inputs].contiguous(), taps[:, -inputs:].unbind(0)
        dilations = [layer.dilation for layer in layers]

        def step(x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
            queues, label_bias = state["queues"], state["label_bias"]
            if x_prev is None:
                x_prev = torch.full_like(label_bias[:, 0, 0], self.levels, dtype=torch.long)
            h = self.embedding(x_prev.long())
            if len(past[0]) == inputs:  # two taps: the one in the past is the oldest of its queue
                read = torch.stack([queue[0] for queue in queues])  # (L, B, N)
            else:
                read = torch.stack([torch.cat(queue[::d], 1) for queue, d in zip(queues, dilations, strict=True)])
            known = torch.baddbmm(bias + label_bias.transpose(0, 1), read, past).unbind(0)
            gated, after = [], []
            for index, queue in enumerate(queues):
                gated.append(gate(torch.addmm(known[index], h, present[index])))
                after.append([*queue[1:], h])
                if index < len(residual):
                    h = torch.addmm(h, gated[-1], residual[index])
            return Categorical(self._scores(torch.cat(gated, 1))), {**state, "queues": after}

        return step

    def _scores(self, gated: Tensor) -> Tensor:
        """The scores of V values from what all layers found, (..., L·N)."""
        return self.output(self.hidden(self.skip(gated).relu()).relu())

    def _label_bias(self, label: Tensor | None, batch_size: int) -> Tensor:
        """(B, L, 2N); zeros, or (B, 1, 1) of them, where there are no labels."""
        if self.label_bias is None:
            if label is not None:
                raise ValueError("context: this model has no labels; leave it None, or give the model num_classes")
            return self.residual.new_zeros(batch_size, len(self.layers), 1)
        if label is None or label.shape != (batch_size,) or label.is_floating_point():
            got = None if label is None else f"shape {tuple(label.shape)} of {label.dtype}"
            raise ValueError(f"context: expected {batch_size} labels, integers of shape ({batch_size},), got {got}")
        classes = self.label_bias.num_embeddings
        if batch_size and not 0 <= int(label.min()) <= int(label.max()) < classes:
            raise ValueError(
                f"context: expected labels in [0, {classes}), got {int(label.min())} to {int(label.max())}"
            )
        return self.label_bias(label).view(batch_size, len(self.layers), -1)
