"""Modes in which a model computes: evaluation, and derivatives that a hand-written gradient does not give."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

Arguments = ParamSpec("Arguments")
Model = TypeVar("Model", bound=nn.Module)
Result = TypeVar("Result")


def in_evaluation(
    function: Callable[Concatenate[Model, Arguments], Result],
) -> Callable[Concatenate[Model, Arguments], Result]:
    """A function of a model that sets evaluation mode while it runs; see `evaluating`."""

    @wraps(function)
    def evaluated(model: Model, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with evaluating(model):
            return function(model, *arguments, **options)

    return evaluated


def drawn_in_evaluation(model: nn.Module, draws: Iterator[Tensor]) -> Iterator[Tensor]:
    """Draws that a model makes one by one: its mode is that of evaluation for each of them, and not between them."""
    parts = list(model.modules())
    while True:
        training = [part for part in parts if part.training]  # usually none, at no cost
        for part in training:
            part.training = False
        try:
            drawn = next(draws, None)
        finally:
            for part in training:
                part.training = True
        if drawn is None:
            return
        yield drawn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode in the block, and restore the mode of every submodule afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def needs_plain_form() -> bool:
    """Whether operations are transformed: by `torch.func` (vmap, grad, jvp, ...) or by forward-mode differentiation.

    No function with a hand-written gradient supports these; plain operations do.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    return transformed or torch.autograd.forward_ad._current_level >= 0


def records_or_transforms(gradient: Tensor) -> bool:
    """Whether a backward pass is itself to be differentiated (`create_graph=True`), or is one of several gradients
    taken at once (`is_grads_batched=True`)."""
    batched: bool = torch._C._functorch.is_legacy_batchedtensor(gradient)
    return batched or torch.is_grad_enabled() or needs_plain_form()
