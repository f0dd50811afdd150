"""Checks for active transforms, modes and gradients, for kernels and checks of values.

The questions have no public API; each is asked in this module alone.
"""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from chainrule.kernels import enabled


def needs_plain_form() -> bool:
    """Return whether `torch.func` (vmap, grad, jvp, ...) or forward-mode differentiation transforms operations.

    No function with a hand-written gradient supports these; plain operations do.
    """
    transformed: bool = torch._C._are_functorch_transforms_active()
    return transformed or torch.autograd.forward_ad._current_level >= 0


def custom_gradients_work() -> bool:
    """Return whether a function with a hand-written gradient may be used: none is transformed, exported or compiled."""
    return enabled() and not (torch.compiler.is_compiling() or torch._C._is_tracing() or needs_plain_form())


def values_are_known(*tensors: Tensor) -> bool:
    """Return whether Python may look at the values of tensors, as a check of an argument does.

    It may not where `torch.vmap` batches them, where `torch.export` or `torch.compile` traces them, and on the meta
    device: there the check is left out. A check that must not make a GPU wait asks for the device as well.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    return not any(tensor.is_meta or isinstance(tensor, FakeTensor) or _is_batched(tensor) for tensor in tensors)


def _is_batched(tensor: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):  # a gradient's wrapper may hold a batched tensor
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def records_or_transforms(*gradients: Tensor) -> bool:
    """Return whether a backward pass is itself differentiated (`create_graph=True`), or is one of several gradients
    taken at once (`is_grads_batched=True`).

    gradients: those at all outputs; any one of them may be the batched one.
    """
    batched = any(map(torch._C._functorch.is_legacy_batchedtensor, gradients))
    return batched or torch.is_grad_enabled() or needs_plain_form()
