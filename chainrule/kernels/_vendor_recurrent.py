"""Recurrent layers by the fused kernels of cuDNN and oneDNN."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

from chainrule.kernels._products import onednn_where_it_runs

# Layers hand themselves over: a kernel imports none of them.
Packing: TypeAlias = Any
Recurrent: TypeAlias = Any


KERNELS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
ONE_HOT_LIMIT = 2**24  # elements of one-hot vectors made for the vendor's kernel: 64 MiB


@contextmanager
def _cudnn_in_own_type(layer: Recurrent, weights: list[Tensor], *, apart: bool) -> Iterator[None]:
    """Without autocast, which sends cuDNN float16 whatever type it is set to; with the weights in one piece.

    Copies of a layer, and weights that `torch.func.functional_call` puts in its place, lie scattered. The layer's own
    are gathered once. All other weights, also of layers that run `apart`, are gathered by cuDNN in each call. torch
    warns of this, with advice that cannot be followed.
    """
    scattered = len({weight.untyped_storage().data_ptr() for weight in weights}) > 1
    if scattered and all(isinstance(weight, nn.Parameter) for weight in weights):
        layer.flatten_parameters()
        scattered = False
    with torch.autocast("cuda", enabled=False), catch_warnings() if scattered or apart else nullcontext():
        if scattered or apart:
            simplefilter("ignore", UserWarning)
        yield


def vendor_output(layer: Recurrent, x: Tensor, parts: list[Tensor], packing: Packing) -> tuple[Tensor, list[Tensor]]:
    """Run all layers and directions by the fused kernel (cuDNN, oneDNN), over full rows or packed ones."""
    kernel, on_gpu = KERNELS[layer.mode], x.device.type == "cuda"
    groups = layer.all_weights
    weights: list[Tensor] = [weight for group in groups for weight in group]
    # cuDNN takes gradients only of a call in training; one that drops nothing computes the same in evaluation.
    training = layer.training or (on_gpu and torch.is_grad_enabled())
    dropout = layer.dropout if layer.training else 0.0
    # cuDNN's dropout draws from a state of its own, which a recorded step would not seed.
    apart = on_gpu and dropout > 0 and layer.num_layers > 1
    if not x.is_floating_point():
        x = nn.functional.one_hot(x, layer.input_size).to(parts[0].dtype)
    if on_gpu and torch.is_autocast_enabled("cuda"):
        x, parts = x.to(weights[0].dtype), [part.to(weights[0].dtype) for part in parts]
    parts = [packing.enter(part).transpose(0, 1).contiguous() for part in parts]
    sizes = None if packing.rows is None else torch.tensor(packing.sizes, device="cpu")

    def run(x: Tensor, parts: list[Tensor], weights: list[Tensor], layers: int) -> tuple[Tensor, list[Tensor]]:
        settings = (layer.bias, layers, 0.0 if apart else dropout, training, layer.bidirectional)
        state = layer._state(parts)
        rows = (x, state, weights, *settings, True) if sizes is None else (x, sizes, state, weights, *settings)
        output, *last = kernel(*rows)
        return output, last

    def run_all(x: Tensor, parts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if not apart:
            return run(x, parts, weights, layer.num_layers)
        finals, directions = [], len(groups) // layer.num_layers
        for first in range(0, len(groups), directions):
            own = slice(first, first + directions)
            x = nn.functional.dropout(x, dropout) if first else x
            x, last = run(x, [part[own] for part in parts], [weight for group in groups[own] for weight in group], 1)
            finals.append(last)
        return x, [torch.cat(last) for last in zip(*finals, strict=True)]

    with _cudnn_in_own_type(layer, weights, apart=apart) if on_gpu else onednn_where_it_runs(x):
        if packing.rows is None:
            output, last = run_all(x, parts)
            return output, [part.transpose(0, 1) for part in last]
        started = packing.sizes[0]  # rows of length 0 are the last and keep their state
        flat, last = run_all(packing.pack(x), [part[:, :started].contiguous() for part in parts])
        finals = [torch.cat([new, old[:, started:]], 1) for new, old in zip(last, parts, strict=True)]
        return packing.unpack(flat), [packing.leave(part.transpose(0, 1)) for part in finals]
