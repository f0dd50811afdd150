"""Matrix–vector products in compiled loops: bound by reading the matrix, which lies as torch.nn keeps it."""

from typing import Any

from chainrule.kernels._machine_code import compiled_sums


@compiled_sums
def add_product(weight: Any, x: Any, y: Any) -> None:
    """y += W x: weight (M, N), x (N,), y (M,)."""
    for row in range(len(y)):
        weights = weight[row]
        total = y.dtype.type(0)
        for column in range(len(x)):
            total += weights[column] * x[column]
        y[row] += total


@compiled_sums
def copy(x: Any, y: Any) -> None:
    """y = x, (N,) both."""
    for index in range(len(y)):
        y[index] = x[index]
