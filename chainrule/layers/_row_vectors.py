"""A single row of features as a NumPy vector: of a few hundred numbers, calling torch takes longer than computing."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from chainrule.layers._sequence_layer import LayerStep
from chainrule.state import State

RowMap: TypeAlias = Callable[[Any], Any]
"""A function of rows of features, a tensor (B, N), or of a single one, a NumPy vector (N,); it returns the like."""


def numpy_may_compute(tensor: Tensor) -> bool:
    """Whether NumPy can take a tensor's operations from torch, and no dispatch mode is to see them."""
    known = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    return known and _get_current_dispatch_mode() is None


def row_map(of_vector: RowMap, of_rows: Callable[[Tensor], Tensor], dtype: torch.dtype) -> RowMap:
    """A function of rows or a vector, without gradients; a tensor of one row is computed as a vector.

    Args:
        of_vector: the function of a vector (N,).
        of_rows: the same function of a tensor (B, N).
        dtype: of the numbers that `of_vector` takes; float32 or float64, on a CPU.

    >>> double = row_map(lambda x: x + x, lambda x: 2 * x, torch.float32)
    >>> double(torch.ones(1, 2)), double(torch.ones(2).numpy()).tolist()
    (tensor([[2., 2.]]), [2.0, 2.0])
    """

    def apply(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return of_vector(x)
        if x.shape[0] != 1 or x.dtype != dtype:
            return of_rows(x)
        return torch.from_numpy(of_vector(x.detach().numpy()[0])[None])

    return apply


def by_torch(function: Callable[[Tensor], Tensor]) -> RowMap:
    """A function of tensors that takes a vector too, without gradients and in the vector's own type.

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
    """A step that is given a single row as a vector, where NumPy may compute with numbers as those of `like`.

    Args:
        step: takes rows and vectors, without gradients.
        like: a weight.
    """
    if not numpy_may_compute(like):
        return step

    def apply(x_t: Tensor, state: State) -> tuple[Tensor, State]:
        if x_t.shape[0] != 1 or x_t.dtype != like.dtype:
            return step(x_t, state)
        y, state = step(x_t.detach().numpy()[0], state)
        return torch.from_numpy(y[None]), state

    return apply
