"""Checks that a prepared path may replace modules: a call does nothing more than the class says."""

from torch import nn
from torch.nn.modules import module as torch_module

from chainrule.kernels import enabled

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
