"""Recurrent layers by the vendor's fused kernels: cuDNN, oneDNN."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

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


def vendor_output(
    layer: "Recurrent", x: Tensor, parts: list[Tensor], packing: "Packing"
) -> tuple[Tensor, list[Tensor]]:
    """Run all layers and directions in one call of the fused kernel (cuDNN, oneDNN), over full rows or packed ones."""
    kernel = KERNELS[layer.mode]
    weights = [weight for group in layer.all_weights for weight in group]
    settings = (weights, layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional)
    if not x.is_floating_point():
        x = nn.functional.one_hot(x, layer.input_size).to(parts[0].dtype)
    parts = [packing.enter(part).transpose(0, 1).contiguous() for part in parts]
    if packing.rows is None:
        with _onednn_where_it_runs(x):
            output, *last = kernel(x, layer._state(parts), *settings, True)
        return output, [part.transpose(0, 1) for part in last]
    started = packing.sizes[0]  # rows of length 0 are the last and keep their state
    state = layer._state([part[:, :started].contiguous() for part in parts])
    flat, *last = kernel(packing.pack(x), torch.tensor(packing.sizes, device="cpu"), state, *settings)
    finals = [torch.cat([new, old[:, started:]], 1) for new, old in zip(last, parts, strict=True)]
    return packing.unpack(flat), [packing.leave(part.transpose(0, 1)) for part in finals]
