"""The vendor's fused recurrence (cuDNN, oneDNN), over full rows or packed ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from chainrule.layers.packing import Packing

if TYPE_CHECKING:
    from chainrule.layers.recurrent import Recurrent

KERNELS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


def run(layer: "Recurrent", x: Tensor, parts: list[Tensor], packing: Packing) -> tuple[Tensor, list[Tensor]]:
    """All layers and directions of `layer` in one call.

    x: (B, T, I) or (B, T) integers; parts: h, or h and c, each (B, L·D, M). Returns (B, T, D·M) and the last parts.
    """
    kernel = KERNELS[layer.mode]
    weights = [weight for group in layer.all_weights for weight in group]
    settings = (weights, layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional)
    if not x.is_floating_point():
        x = torch.nn.functional.one_hot(x, layer.input_size).to(parts[0].dtype)
    parts = [packing.enter(part).transpose(0, 1).contiguous() for part in parts]
    if packing.rows is None:
        output, *last = kernel(x, _state(layer, parts), *settings, True)
        return output, [part.transpose(0, 1) for part in last]
    started = packing.sizes[0]  # rows of length 0 stand last and keep their state
    state = _state(layer, [part[:, :started].contiguous() for part in parts])
    flat, *last = kernel(packing.pack(x), torch.tensor(packing.sizes), state, *settings)
    finals = [torch.cat([new, old[:, started:]], 1) for new, old in zip(last, parts, strict=True)]
    return packing.unpack(flat), [packing.leave(part.transpose(0, 1)) for part in finals]


def _state(layer: "Recurrent", parts: list[Tensor]) -> tuple[Tensor, ...] | Tensor:
    return tuple(parts) if layer.has_cell else parts[0]
