"""Derivatives of the recurrences beyond the first, and the transforms of `torch.func`.

A recurrence with a gradient of its own is written a second time, cell by cell in plain operations. That form is run
where autograd records the backward pass (`create_graph=True`), so that derivatives of any order exist, and inside
`vmap`, `grad`, `jvp` and their kin. It needs the activations that the first pass kept, and no copy of the projected
inputs: a `placeholder` leads to them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # d * f'(a) from the output y = f(a)
    "sigmoid": lambda d, y: d * y * (1 - y),
    "tanh": lambda d, y: d * (1 - y * y),
    "relu": lambda d, y: d * (y > 0),
    "identity": lambda d, y: d,
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda a: a,
}


def placeholder(x: Tensor) -> Tensor:
    """Zeros in the shape of x that take no memory and pass gradients on to x."""
    zeros: Tensor = _Placeholder.apply(x)
    return zeros


def activation(function: str, a: Tensor, known: Tensor | None) -> Tensor:
    """f(a), or where its value is known, that value with the derivatives of f at a."""
    if known is None:
        return _FUNCTIONS[function](a)
    y: Tensor = _Known.apply(a, known, function)
    return y


def gradients_again(
    plain: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradient at each input, itself differentiable.

    Args:
        plain: the function in plain operations.
        inputs: those saved by the first pass.
        gradients: of the outputs.
    """
    with torch.enable_grad():
        # Aliases: one input may depend on another, as a state does on the weights, and each gradient is a partial one.
        own = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
        pairs = [(y, d) for y, d in zip(plain(*own), gradients, strict=True) if y.requires_grad]
        wanted = [x for x in own if x is not None and x.requires_grad]
        outputs, weights = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, wanted, weights, create_graph=True, allow_unused=True))
        return [next(found) if x is not None and x.requires_grad else None for x in own]


class _Placeholder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.new_zeros(()).expand(x.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, known: Tensor, function: str) -> Tensor:
        y = known.clone()
        ctx.save_for_backward(y)
        ctx.function = function
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return _SLOPES[ctx.function](gradient, y), None, None
