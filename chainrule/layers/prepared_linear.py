"""Linear layers prepared for one row, or a few, while their weights stay as they are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.layers.linear import onednn_linear, packs
from chainrule.layers.row_vectors import RowMap, numpy_may_compute, row_map

USUAL_ROWS = 8  # for which oneDNN lays out a weight
LEAST = 2**18  # numbers in a weight: below, a plain product is faster (8 rows, 192 x 192: 11 us against 21)


def prepared_linear(weight: Tensor, bias: Tensor | None) -> RowMap:
    """A function equal to `torch.nn.functional.linear` without gradients, for few rows or a vector and fixed weights.

    The product of a matrix with a single vector is bound by reading the matrix. On a processor NumPy's is measured one
    and a half times as fast as torch's (benchmarks/speed_attention.py), in the layout whose inner loop is the
    longer side.

    Args:
        weight: (M, N).
        bias: (M,) or None.

    >>> prepared_linear(torch.tensor([[1.0, 2.0]]), None)(torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if not numpy_may_compute(weight):
        return lambda x: nn.functional.linear(x, weight, bias)
    wide = weight.shape[0] >= weight.shape[1]
    matrix = (weight.t().contiguous() if wide else weight.contiguous()).numpy()
    added = None if bias is None else bias.numpy()

    def multiply(vector: Any) -> Any:
        product = vector.dot(matrix) if wide else matrix.dot(vector)
        if added is not None:
            product += added
        return product

    return row_map(multiply, lambda x: nn.functional.linear(x, weight, bias), weight.dtype)


def packed_linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A function equal to `torch.nn.functional.linear` without gradients, for fixed weights, to rounding.

    A product with a few rows is bound by reading the weight, and a vendor's library lays it out again at each call,
    which takes longer than the product. Here oneDNN does so once: with 8 rows the weights of 6 blocks of 384 features
    take 3.7 ms, against 6.7; with a single row (`prepared_linear`) 2.3.

    Args:
        weight: (M, N).
        bias: (M,) or None.

    >>> packed_linear(torch.tensor([[1.0, 2.0]]), None)(torch.tensor([[3.0, 4.0], [1.0, 1.0]]))
    tensor([[11.],
            [ 3.]])
    """
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    able = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled and weight.device.type == "cpu"
    if not able or weight.dtype != torch.float32 or weight.numel() < LEAST or not packs(torch.float32):
        return lambda x: nn.functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), USUAL_ROWS)
    return lambda x: onednn_linear(x, packed, bias)
