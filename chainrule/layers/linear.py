"""Products of float32 matrices by the faster of torch's two libraries.

On a processor torch multiplies float32 by MKL, which leaves AVX-512 unused on those of AMD. oneDNN, which torch has for
convolutions and bfloat16, takes 0.4 of the time there (benchmarks/LOG.md); elsewhere both take the same.
"""

from functools import cache
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.transforms import needs_plain_form

LEAST_MULTIPLICATIONS = 2**22  # fewer do not pay for a gradient in Python
_CLEARLY = 1.4  # times as fast: far from 1 and from what AVX-512 gains, so that one machine always decides alike


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, equal to `torch.nn.functional.linear` to rounding.

    Args:
        x: (..., N).
        weight: W, (K, N).
        bias: b, (K,).

    Returns:
        (..., K).
    """
    if not _by_onednn(x, weight):
        return nn.functional.linear(x, weight, bias)
    y: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return y.view(*x.shape[:-1], len(weight))


def product(a: Tensor, b: Tensor) -> Tensor:
    """a bᵀ of a (R, N) and b (K, N), (R, K)."""
    if not _by_onednn(a, b):
        return torch.mm(a, b.t())
    y: Tensor = _Product.apply(a, b, None)
    return y


class Linear(nn.Linear):
    """`torch.nn.Linear`, multiplied by `linear`.

    >>> Linear(2, 3)(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return linear(x, self.weight, self.bias)


class _Product(torch.autograd.Function):
    """a bᵀ + c; its gradients are such products again, so that there are derivatives of any order."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        return _multiply(a, b, c)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a, of_b, of_c = ctx.needs_input_grad
        return (
            product(gradient, b.t()) if of_a else None,
            product(gradient.t(), a.t()) if of_b else None,
            gradient.sum(0) if of_c else None,
        )


def _multiply(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, c, "none", [], "")
    return y


def _by_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN multiplies these: where it is faster, and nothing looks on that knows torch's product alone."""
    return (
        a.dtype == b.dtype == torch.float32
        and a.numel() * len(b) >= LEAST_MULTIPLICATIONS
        and a.device.type == b.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not needs_plain_form()
        and not torch._C._functorch.is_legacy_batchedtensor(a)
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
        and not torch.compiler.is_compiling()
        and onednn_is_faster()
    )


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 clearly faster than MKL on this processor: measured once, in some 10 ms.

    One thread is timed, the shortest of several times: two would wait for one another where other work runs.
    """
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    a, b = torch.ones(2, 256, 256)
    best, threads = {"mkl": float("inf"), "onednn": float("inf")}, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.autocast("cpu", enabled=False):
            for _ in range(8):
                for name, multiply in (("mkl", nn.functional.linear), ("onednn", _multiply)):
                    began = perf_counter()
                    multiply(a, b)
                    best[name] = min(best[name], perf_counter() - began)
    except (AttributeError, RuntimeError):  # a torch without the operator
        return False
    finally:
        torch.set_num_threads(threads)
    return best["mkl"] > _CLEARLY * best["onednn"]
