"""Whether autograd asks for more than the plain first derivative that a hand-written gradient gives."""

import torch


def needs_plain_form() -> bool:
    """Whether operations are transformed: by `torch.func` (vmap, grad, jvp, ...), batched gradients or forward mode.

    No function with a hand-written gradient supports these; plain operations do.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    return transformed or torch.autograd.forward_ad._current_level >= 0


def records_or_transforms() -> bool:
    """Whether a backward pass is itself to be differentiated (`create_graph=True`) or is transformed."""
    return torch.is_grad_enabled() or needs_plain_form()
