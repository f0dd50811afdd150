"""The masks of a MADE, and linear layers under them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer


def made_degrees(
    order: Tensor, hidden_sizes: Sequence[int], *, lowest: int = 1, generator: torch.Generator | None = None
) -> list[Tensor]:
    """Return the degrees of D inputs and of every hidden unit (Germain et al. 2015).

    An input has its place in the order, from 1. A hidden unit of degree m may read the first m columns of the order;
    degrees run from `lowest` to D-1 and are spread evenly, so that each of them has a unit where there are units
    enough: a column can then influence the very next one. They ascend, or are shuffled by a generator.

    Args:
        order: (D,) a permutation; order[i] is the column that is visited i-th, from 0.
        hidden_sizes: units of each hidden layer.
        lowest: the smallest degree of a hidden unit: 1, or 0 for units that read no column, only a condition.
        generator: source of the shuffling; None leaves units in ascending order.

    Returns:
        (D,) integers for the inputs, then (M,) integers for each hidden layer.

    >>> made_degrees(torch.tensor([2, 0, 1]), [4])
    [tensor([2, 3, 1]), tensor([1, 1, 2, 2])]
    """
    size = len(order)
    lowest = min(lowest, size - 1)  # a single column leaves nothing to read: degree 0
    degrees = [torch.argsort(order) + 1]
    for units in hidden_sizes:
        spread = lowest + torch.arange(units, device=order.device) * (size - lowest) // units
        if generator is not None:
            spread = spread[torch.randperm(units, generator=generator, device=generator.device).to(order.device)]
        degrees.append(spread)
    return degrees


def made_masks(degrees: Sequence[Tensor]) -> list[Tensor]:
    r"""Return the masks of a MADE's layers, the output layer's last, (units, inputs) booleans each.

    .. math:: W^{(l)}_{kj} \text{ is free iff } m^{(l)}(k) \ge m^{(l-1)}(j), \qquad
        V_{dk} \text{ is free iff } d > m^{(L)}(k)

    The first column of the order has an all-zero row: nothing but its bias.

    Args:
        degrees: of the inputs, then of each hidden layer, as `made_degrees` makes them.

    >>> [mask.int().tolist() for mask in made_masks([torch.tensor([1, 2, 3])])]
    [[[0, 0, 0], [1, 0, 0], [1, 1, 0]]]
    """
    hidden = [above.unsqueeze(1) >= below for below, above in pairwise(degrees)]
    return [*hidden, degrees[0].unsqueeze(1) > degrees[-1]]


_ALIGNED = 16  # units
_MANY = 2048  # rows


def _slow_on_processors(x: Tensor, weight: Tensor) -> bool:
    """Return whether a product for many rows takes 1.5 times as long as one for a few more units: MKL's, in float32."""
    return (
        len(weight) % _ALIGNED > 0
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.dim() == 2
        and len(x) >= _MANY
    )


@final
class MaskedLinear(nn.Module):
    r"""A linear map that reads only what its mask lets through.

    .. math:: y = (W \odot M) x + b

    Weights outside the mask have no effect and receive a zero gradient. Rows start with the variance that `nn.Linear`
    would give a unit with the number of inputs that the mask leaves.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, bias: bool = True):
        super().__init__()
        fixed_buffer(self, "mask", mask)
        self.weight = nn.Parameter(torch.empty(mask.shape, device=self.mask.device))
        self.bias = nn.Parameter(torch.zeros(mask.shape[0], device=self.mask.device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights."""
        if self.weight.is_meta:  # there are none, and sums there import a compiler, which takes seconds
            return
        nn.init.uniform_(self.weight, -1, 1)
        with torch.no_grad():
            self.weight.div_(self.mask.sum(1, keepdim=True).clamp_min(1).sqrt())
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., units)."""
        weight = self.weight * self.mask
        if not _slow_on_processors(x, weight):
            return nn.functional.linear(x, weight, self.bias)
        more = -len(weight) % _ALIGNED
        bias = None if self.bias is None else nn.functional.pad(self.bias, (0, more))
        return nn.functional.linear(x, nn.functional.pad(weight, (0, 0, 0, more)), bias)[:, : len(weight)]

    def extra_repr(self) -> str:
        units, inputs = self.mask.shape
        return f"inputs={inputs}, units={units}, bias={self.bias is not None}"
