"""Modes in which a model computes: evaluation, and derivatives that a hand-written gradient does not give."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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


def records_or_transforms(*gradients: Tensor) -> bool:
    """Whether a backward pass is itself to be differentiated (`create_graph=True`), or is one of several gradients
    taken at once (`is_grads_batched=True`).

    gradients: those at all outputs; any one of them may be the batched one.
    """
    batched = any(map(torch._C._functorch.is_legacy_batchedtensor, gradients))
    return batched or torch.is_grad_enabled() or needs_plain_form()
