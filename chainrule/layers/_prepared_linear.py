"""Linear layers prepared for one row, or a few, while their weights stay as they are."""

from typing import Any

from torch import Tensor, nn

from chainrule.layers._row_vectors import RowMap, numpy_may_compute, row_map


def prepared_linear(weight: Tensor, bias: Tensor | None) -> RowMap:
    """A function equal to `torch.nn.functional.linear` without gradients, for few rows or a vector and fixed weights.

    The product of a matrix with a single vector is bound by reading the matrix. On a processor NumPy's is measured one
    and a half times as fast as torch's (benchmarks/speed_attention.py), in the layout whose inner loop is the
    longer side.

    Args:
        weight: (M, N).
        bias: (M,) or None.

    >>> import torch
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
