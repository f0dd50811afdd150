"""Products of float32 matrices by the faster of torch's two libraries.

On a processor torch multiplies float32 by MKL, which leaves AVX-512 unused on AMD processors. oneDNN, which torch
uses for convolutions and bfloat16, takes 0.4 of the time on Zen 5 (benchmarks/LOG.md).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._transforms import custom_gradients_work

LEAST_MULTIPLICATIONS = 2**22  # fewer do not pay for a gradient in Python
_ZEN_5 = 26  # family of the first processors of AMD that multiply 512 bits at a time
_BELOW_AVX512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2")  # values of oneDNN's variable


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b of x (..., N), with gradients of any order."""
    y: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return y.view(*x.shape[:-1], len(weight))


def product(a: Tensor, b: Tensor, addend: Tensor | None = None) -> Tensor:
    """a bᵀ + addend of a (R, N), b (K, N) and an addend (R, K)."""
    if onednn_multiplies(a, b):
        y: Tensor = _Product.apply(a, b, None)
        return y if addend is None else y + addend
    return torch.mm(a, b.t()) if addend is None else torch.addmm(addend, a, b.t())


class _Product(torch.autograd.Function):
    """a bᵀ + c; its gradients are such products again, so that there are derivatives of any order."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        of_a, of_b, _ = ctx.needs_input_grad
        ctx.save_for_backward(a if of_b else None, b if of_a else None)
        return onednn_linear(a, b, c)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return (
            None if b is None else product(gradient, b.t()),
            None if a is None else product(gradient.t(), a.t()),
            gradient.sum(0) if ctx.needs_input_grad[2] else None,
        )


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by oneDNN, without a gradient; x is (R, N), W plain or laid out before."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def onednn_multiplies(a: Tensor, b: Tensor, c: Tensor | None = None) -> bool:
    """Return whether oneDNN multiplies these: it is faster, and no transform or mode needs torch's own operator."""
    return (
        custom_gradients_work()
        and a.dtype == b.dtype == torch.float32
        and b.dim() == 2
        and a.shape[-1:] == b.shape[1:]
        and (c is None or (c.dtype == torch.float32 and c.shape == b.shape[:1]))
        and a.numel() * len(b) >= LEAST_MULTIPLICATIONS
        and a.device.type == b.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._functorch.is_legacy_batchedtensor(a)
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
        and bool(torch.backends.mkldnn.enabled)
        and onednn_is_faster()
    )


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies float32 clearly faster than MKL: on AMD processors from Zen 5 on.

    The processor decides, and no clock, so that one machine always computes alike.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512") or limit.upper() in _BELOW_AVX512:
        return False
    return amd_family() >= _ZEN_5 and packs(torch.float32)


@cache
def packs(dtype: torch.dtype) -> bool:
    """Try whether oneDNN lays out and multiplies weights of this type here: processors differ."""
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.ones(16, 16, dtype=dtype, device="cpu"), 2)
        onednn_linear(torch.ones(2, 16, dtype=dtype, device="cpu"), packed)
    except (AttributeError, RuntimeError):  # a torch without the operators, a processor without the instructions
        return False
    return True


def amd_family(cpuinfo: Path = Path("/proc/cpuinfo")) -> int:
    """Family of a processor of AMD, such as 25 of Zen 4; 0 of others, and where the system does not say."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = os.environ.get("PROCESSOR_IDENTIFIER", "")  # of Windows: "AMD64 Family 25 Model 97, AuthenticAMD"
    family = re.search(r"(?:cpu family\s*: |Family )(\d+)", text)
    return int(family[1]) if family and "AuthenticAMD" in text else 0


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
