"""Recurrent layers by the vendor's fused kernels: cuDNN, oneDNN."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from chainrule.layers._packing import Packing
    from chainrule.layers._recurrent import Recurrent

KERNELS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
ONE_HOT_LIMIT = 2**24  # elements of one-hot vectors made for the vendor's kernel: 64 MiB


@cache
def _onednn_runs_lstm(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's LSTM runs under autocast to this type, found by trying: without AVX-512 it raises."""
    cell = nn.LSTM(1, 1, device="cpu", dtype=torch.float32)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            cell(torch.zeros(1, 1, 1, device="cpu", dtype=torch.float32))
    except RuntimeError:
        return False
    return True


@contextmanager
def _onednn_where_it_runs(x: Tensor) -> Iterator[None]:
    """Without oneDNN, torch's own kernel, where autocast would send oneDNN a type that it refuses on this processor."""
    onednn = torch.backends.mkldnn
    refused = (
        x.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and onednn.enabled
        and not _onednn_runs_lstm(torch.get_autocast_dtype("cpu"))
    )
    try:
        if refused:
            onednn.enabled = False  # type: ignore[assignment]  # a property of the module, which mypy misreads
        yield
    finally:
        if refused:
            onednn.enabled = True  # type: ignore[assignment]  # likewise


@contextmanager
def _cudnn_in_own_type(layer: "Recurrent", weights: list[Tensor]) -> Iterator[None]:
    """Without autocast, which sends cuDNN float16 whatever type it is set to; with the weights in one piece.

    Copies of a layer, and weights that `torch.func.functional_call` puts in its place, lie scattered. The layer's own
    are gathered once. cuDNN gathers others in each call, and torch warns of that with advice that cannot be followed.
    """
    scattered = len({weight.untyped_storage().data_ptr() for weight in weights}) > 1
    if scattered and all(isinstance(weight, nn.Parameter) for weight in weights):
        layer.flatten_parameters()
        scattered = False
    with torch.autocast("cuda", enabled=False), catch_warnings() if scattered else nullcontext():
        if scattered:
            simplefilter("ignore", UserWarning)
        yield


def vendor_output(
    layer: "Recurrent", x: Tensor, parts: list[Tensor], packing: "Packing"
) -> tuple[Tensor, list[Tensor]]:
    """Run all layers and directions in one call of the fused kernel (cuDNN, oneDNN), over full rows or packed ones."""
    kernel = KERNELS[layer.mode]
    weights: list[Tensor] = [weight for group in layer.all_weights for weight in group]
    # cuDNN takes gradients only of a call in training; one that drops nothing computes the same in evaluation.
    training = layer.training or (x.device.type == "cuda" and torch.is_grad_enabled())
    dropout = layer.dropout if layer.training else 0.0
    settings = (layer.bias, layer.num_layers, dropout, training, layer.bidirectional)
    if not x.is_floating_point():
        x = nn.functional.one_hot(x, layer.input_size).to(parts[0].dtype)
    if x.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        x, parts = x.to(weights[0].dtype), [part.to(weights[0].dtype) for part in parts]
    parts = [packing.enter(part).transpose(0, 1).contiguous() for part in parts]
    with _cudnn_in_own_type(layer, weights) if x.device.type == "cuda" else _onednn_where_it_runs(x):
        if packing.rows is None:
            output, *last = kernel(x, layer._state(parts), weights, *settings, True)
            return output, [part.transpose(0, 1) for part in last]
        started = packing.sizes[0]  # rows of length 0 are the last and keep their state
        state = layer._state([part[:, :started].contiguous() for part in parts])
        flat, *last = kernel(packing.pack(x), torch.tensor(packing.sizes, device="cpu"), state, weights, *settings)
        finals = [torch.cat([new, old[:, started:]], 1) for new, old in zip(last, parts, strict=True)]
        return packing.unpack(flat), [packing.leave(part.transpose(0, 1)) for part in finals]
