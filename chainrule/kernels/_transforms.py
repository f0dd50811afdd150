"""Checks for active transforms, modes and gradients, and that a prepared path may replace modules."""

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as torch_module

from chainrule.kernels import enabled
from chainrule.kernels._cuda_graphs import being_recorded


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

    It may not where `torch.vmap` batches them, where `torch.export` or `torch.compile` traces them, where a GPU records
    what happens to them, and on the meta device: there the check is left out. A check that must not make a GPU wait
    asks for the device as well.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing() or being_recorded(*tensors):
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


# Classes of torch.nn whose weights are read, or that are never called.
_KNOWN = (
    nn.Conv1d,
    nn.Conv2d,
    nn.ConvTranspose2d,
    nn.Embedding,
    nn.Identity,
    nn.LayerNorm,
    nn.Linear,
    nn.ModuleDict,
    nn.ModuleList,
    nn.ParameterDict,
    nn.ParameterList,
    nn.RMSNorm,
)


def may_prepare(*modules: nn.Module) -> bool:
    """Return whether a prepared path may stand in for modules: kernels are enabled, and the modules `is_plain`."""
    return enabled() and is_plain(*modules)


def is_plain(*modules: nn.Module) -> bool:
    """Return whether a prepared path may use the weights of modules, and of all modules in them, without calling them.

    It may not where a call would do more: a forward hook, a module of another class (a wrapper such as LoRA, a
    subclass, a parametrised module), or a `forward` that was set on an instance. Then the modules have to be called.

    >>> layer = nn.Linear(2, 2)
    >>> is_plain(layer), is_plain(nn.Sequential(layer))
    (True, False)
    >>> handle = layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    >>> is_plain(layer)
    False
    """
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return False
    return all(_runs_its_class(part) for module in modules for part in module.modules())


def _runs_its_class(module: nn.Module) -> bool:
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    kind = type(module)
    if kind in _KNOWN or kind.__module__.startswith("chainrule."):
        return True
    layer = ("chainrule.layers._sequence_layer", "SequenceLayer")
    base = next((owner for owner in kind.__mro__ if (owner.__module__, owner.__name__) == layer), None)
    if base is None:
        return False
    # A sequence layer of a user is as it says, but for a subclass that changes `forward` alone.
    changed = _owner(kind, "forward")
    return all(owner is base or issubclass(owner, changed) for owner in (_owner(kind, "step"), _owner(kind, "prepare")))


def _owner(kind: type, method: str) -> type:
    """Return the class in which a method of a class is defined."""
    return next(base for base in kind.__mro__ if method in vars(base))
