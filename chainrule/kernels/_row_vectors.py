"""Steps of a single row with NumPy: of a few hundred numbers, calling torch takes longer than computing.

Measured at batch 1 (benchmarks/LOG.md): 1.6 to 2.4 times as fast as torch's calls in a Transformer.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from chainrule.kernels._plain_modules import is_plain
from chainrule.state import State

LayerStep: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]
RowMap: TypeAlias = Callable[[Any], Any]
"""A function of rows of features, a tensor (B, N), or of a single one, a NumPy vector (N,); it returns the like."""


def numpy_may_compute(tensor: Tensor) -> bool:
    """Return whether NumPy may take over a tensor's operations: no dispatch mode needs to see them."""
    supported = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    return supported and _get_current_dispatch_mode() is None


def row_map(of_vector: RowMap, of_rows: Callable[[Tensor], Tensor], dtype: torch.dtype) -> RowMap:
    """Return a function of rows or a vector, without gradients; a tensor of one row is computed as a vector."""

    def apply(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return of_vector(x)
        if x.shape[0] != 1 or x.dtype != dtype:
            return of_rows(x)
        return torch.from_numpy(of_vector(x.detach().numpy()[0])[None])

    return apply


def by_torch(function: Callable[[Tensor], Tensor]) -> RowMap:
    """Return a function of tensors that takes a vector too, without gradients and in the vector's own type.

    >>> by_torch(torch.relu)(torch.tensor([-1.0, 2.0]).numpy()).tolist()
    [0.0, 2.0]
    """

    def apply(x: Any) -> Any:
        if isinstance(x, Tensor):
            return function(x)
        row = torch.from_numpy(x[None])
        return function(row).detach().to(row.dtype).numpy()[0]  # autocast may have made it another

    return apply


def vector_step(step: Callable[[Any, State], tuple[Any, State]], like: Tensor) -> LayerStep:
    """Return a step that takes a single row as a vector, where NumPy may compute with numbers like `like`."""
    if not numpy_may_compute(like):
        return step

    def apply(x_t: Tensor, state: State) -> tuple[Tensor, State]:
        if x_t.shape[0] != 1 or x_t.dtype != like.dtype:
            return step(x_t, state)
        y, state = step(x_t.detach().numpy()[0], state)
        return torch.from_numpy(y[None]), state

    return apply


def prepared_linear(weight: Tensor, bias: Tensor | None) -> RowMap:
    """Return a function equal to `torch.nn.functional.linear`, without gradients, for few rows and fixed weights.

    The product of a matrix with a single vector is bound by reading the matrix. On a processor NumPy's is measured one
    and a half times as fast as torch's (benchmarks/speed_attention.py), in the layout whose inner loop is the
    longer side.
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


def prepared_norm(norm: nn.Module) -> RowMap:
    """Return a function equal to a norm with fixed weights; calling the module costs twice as much."""
    match norm:
        case nn.LayerNorm(weight=nn.Parameter() as weight, bias=nn.Parameter() as bias) if is_plain(norm):
            shape, epsilon = list(norm.normalized_shape), norm.eps
            if numpy_may_compute(weight):
                scale, shift = weight.detach().numpy(), bias.detach().numpy()

            def normalise(x: Any) -> Any:
                if isinstance(x, torch.Tensor):
                    return torch.layer_norm(x, shape, weight, bias, epsilon)
                y = x - np.add.reduce(x) / len(x)
                y *= 1 / math.sqrt(y.dot(y) / len(y) + epsilon)
                y *= scale
                y += shift
                return y

            return normalise
    return by_torch(norm)


def prepared_gelu(like: Tensor) -> RowMap:
    """Return a function for x Φ(x) of rows, or of a vector, of numbers like `like`."""
    if not numpy_may_compute(like):
        return by_torch(nn.functional.gelu)
    return row_map(_gelu_of_vector, nn.functional.gelu, like.dtype)


def _gelu_of_vector(x: Any) -> Any:
    """x Φ(x); of a single row oneDNN's function takes four times as long."""
    y = torch.from_numpy(x * x.dtype.type(0.5**0.5)).erf_().numpy()
    y += 1
    y *= x
    y *= x.dtype.type(0.5)
    return y
