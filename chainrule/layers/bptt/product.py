"""The same small matrix product at every time step, with its weight laid out once."""

from functools import cache

import torch
from torch import Tensor

LEAST_STEPS = 8  # fewer products do not pay for laying the weight out
LEAST_FLOAT32 = 2**19  # numbers in a float32 weight: below, a plain product that adds in the same call is faster


class Product:
    """x ↦ x Wᵀ, taken once a time step in W's type, and added to or stored in an array of the wide type.

    On a CPU the weight is laid out for oneDNN's kernel once, where a plain product would do so at every step: with two
    threads and 32 rows this halves the time of a float32 product and takes a third off a bfloat16 one
    (benchmarks/LOG.md). The operators are torch's own, those that torch.compile calls; where they are missing, plain
    products do the same work.

    Args:
        weight: (K, M).
        rows: the most rows that a step has.
        steps: how many steps there are.
        wide: the type of the sums.
    """

    def __init__(self, weight: Tensor, rows: int, steps: int, wide: torch.dtype):
        self._weight = weight
        self._mixed = weight.dtype != wide
        self._packed = None
        if rows > 1 and steps >= LEAST_STEPS and _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)

    def add(self, addend: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """addend + x Wᵀ into `out`."""
        if self._packed is None and not self._mixed:
            return torch.addmm(addend, x, self._weight.t(), out=out)
        return torch.add(addend, self._of(x), out=out)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        """x Wᵀ into `out`."""
        if self._packed is None and not self._mixed:
            return torch.mm(x, self._weight.t(), out=out)
        return out.copy_(self._of(x))

    def _of(self, x: Tensor) -> Tensor:
        if self._packed is None:
            return torch.mm(x, self._weight.t())
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        return product


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    if weight.dtype == torch.bfloat16:
        return packs(torch.bfloat16)
    return weight.dtype == torch.float32 and weight.numel() >= LEAST_FLOAT32 and packs(torch.float32)


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN lays out and multiplies weights of this type here, found by trying it: processors differ."""
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.ones(16, 16, dtype=dtype), 2)
        torch.ops.mkldnn._linear_pointwise(torch.ones(2, 16, dtype=dtype), packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # a torch without the operators, a processor without the instructions
        return False
    return True
