"""A saved model is the model."""

import inspect
from contextlib import suppress
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._isolation import reseed
from chainrule.testing._leaves import hidden_tensors, transient_buffers
from chainrule.testing._subject import M, Subject, Violation, in_type, independent_copy
from chainrule.testing._values import distance


@contract_check(*KINDS)
@torch.no_grad()
def check_save_load(subject: Subject[M]) -> str:
    """The `state_dict`, through a file's bytes into a model with other weights, gives the same answers exactly.

    Values that a `state_dict` does not contain are corrupted in the second model: tensors that are kept on a module
    without being registered, and modules hidden in plain lists. Constants that the constructor recreates are left
    alone. They are the values that two calls of the constructor make alike or, if it cannot be called again, tensors of
    0, 1 and infinity, and ordered integers.
    """

    def answers(model: M) -> dict[str, Tensor]:
        return {"": subject.numbers(subject.batch(), model), **subject.further(subject.batch(12), model)}

    model = subject.model
    expected = answers(model)
    saved = _through_bytes(model.state_dict())
    other = independent_copy(model)
    transient = {id(tensor) for tensor in transient_buffers(other).values()}
    for tensor in [*other.parameters(), *other.buffers()]:
        if id(tensor) not in transient:
            _spoil(subject, tensor)
    hidden = _spoil_hidden(subject, model, other)
    with suppress(Exception):  # spoiled weights need not make sense
        answers(other)  # what a model prepares from its weights must not outlive them
    try:
        result = other.load_state_dict(saved)
    except RuntimeError as error:
        raise Violation(f"load_state_dict: {' '.join(str(error).split())}") from error
    if result.missing_keys or result.unexpected_keys:
        raise Violation(f"load_state_dict: missing {result.missing_keys}, unexpected {result.unexpected_keys}")
    for (name, left), right in zip(expected.items(), answers(other).values(), strict=True):
        if left.shape != right.shape or distance(left, right).any():
            gap = float(distance(left, right).max()) if left.shape == right.shape else float("inf")
            where = f"; not in its state_dict: {', '.join(hidden)}" if hidden else ""
            raise Violation(f"{name or 'an answer'} of the loaded model differs by {gap:.3g} nats{where}")
    return f"{len(saved)} tensors, through safetensors into a model with other weights"


def _through_bytes(state: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: value.detach().clone().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in state.items() if name not in tensors}
    loaded = load(save(tensors))
    return {name: others[name] if name in others else loaded[name].to(state[name].device) for name in state}


def _spoil(subject: Subject[Any], tensor: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.data = tensor + 1 + subject.normal(tensor.shape).to(tensor.dtype)
    elif tensor.dtype == torch.bool:
        tensor.data = ~tensor
    elif tensor.numel() > 1:  # an order stays an order, an index stays in range
        tensor.data = tensor.flatten().flip(0).roll(1).view(tensor.shape)


def _spoil_hidden(subject: Subject[Any], model: nn.Module, other: nn.Module) -> list[str]:
    """Spoil what is state and not registered; the paths."""
    rebuilt, transient, found = _rebuilt(model), transient_buffers(other), _unsaved(other)
    hidden = {path: found[path] for path in found if _is_state(path, found[path], rebuilt, transient=path in transient)}
    for tensor in hidden.values():
        spoiled = tensor.detach().clone()
        _spoil(subject, spoiled)
        tensor.detach().copy_(spoiled)
    return list(hidden)


def _unsaved(model: nn.Module) -> dict[str, Tensor]:
    return hidden_tensors(model) | transient_buffers(model)


def _is_state(path: str, tensor: Tensor, rebuilt: list[dict[str, Tensor]], *, transient: bool) -> bool:
    """Whether a tensor is something that a new model of the same arguments would not have."""
    found = [tensors.get(path) for tensors in rebuilt]
    if found and all(built is not None and built.shape == tensor.shape for built in found):
        first, second = (built.to(tensor) for built in found if built is not None)
        if not _close(first, second):
            return True
        return not transient and not _close(first, tensor)
    return not transient and not _looks_constant(tensor)


def _close(left: Tensor, right: Tensor) -> bool:
    """Equal but for the precision in which a constant was computed."""
    if not left.is_floating_point():
        return torch.equal(left, right)
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True)


def _looks_constant(tensor: Tensor) -> bool:
    if tensor.is_floating_point():
        return bool(((tensor == 0) | (tensor.abs() == 1) | tensor.isinf()).all())
    flat = tensor.flatten().long()
    return tensor.dtype == torch.bool or bool((flat.diff() >= 0).all()) or bool((flat.diff() <= 0).all())


def _rebuilt(model: nn.Module) -> list[dict[str, Tensor]]:
    """Values that two new models of the same arguments hold outside their `state_dict`; empty where none can be made.

    The arguments are taken from attributes of the same names, or are defaults.
    """
    if not _unsaved(model):
        return []
    arguments = {}
    for name, parameter in inspect.signature(type(model)).parameters.items():
        if isinstance(vars(model).get(name), (bool, int, float, str)):
            arguments[name] = vars(model)[name]
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            return []
    shapes = {name: value.shape for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    built = []
    for seed in (1, 2):
        reseed(seed)
        try:
            twin = type(model)(**arguments)
        except Exception:
            return []
        if {name: value.shape for name, value in twin.state_dict().items() if isinstance(value, Tensor)} != shapes:
            return []
        built.append(in_type(_unsaved(twin), torch.float64))
    return built
