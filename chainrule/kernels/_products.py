"""Products by oneDNN with weights laid out before, and what oneDNN computes on this processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by oneDNN, without a gradient; x is (R, N), W plain or laid out before."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


@cache
def packs(dtype: torch.dtype) -> bool:
    """Try whether oneDNN lays out and multiplies weights of this type here: processors differ."""
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.ones(16, 16, dtype=dtype, device="cpu"), 2)
        onednn_linear(torch.ones(2, 16, dtype=dtype, device="cpu"), packed)
    except (AttributeError, RuntimeError):  # a torch without the operators, a processor without the instructions
        return False
    return True


@cache
def _onednn_runs_lstm(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's LSTM runs under autocast to this type, found by trying: without AVX-512 it raises."""
    x, bias = torch.zeros(1, 1, 1, device="cpu", dtype=torch.float32), torch.zeros(4, device="cpu", dtype=torch.float32)
    weight = bias.view(4, 1)  # not of a module, which draws its weights: training draws dropout from the same generator
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            torch.lstm(x, (x, x), (weight, weight, bias, bias), True, 1, 0.0, False, False, True)
    except RuntimeError:
        return False
    return True


@contextmanager
def onednn_where_it_runs(x: Tensor) -> Iterator[None]:
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
