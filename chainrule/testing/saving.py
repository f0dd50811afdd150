"""A saved model is the model."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel
from chainrule.testing.choices import Choices
from chainrule.testing.contract_check import contract_check
from chainrule.testing.isolation import reseed
from chainrule.testing.leaves import hidden_tensors, transient_buffers
from chainrule.testing.subject import N, Subject, Violation, independent_copy
from chainrule.testing.values import distance


@contract_check
@torch.no_grad()
def check_save_load(subject: Subject) -> str:
    """The `state_dict`, through a file's bytes into a model with other weights, gives the same conditionals exactly.

    What a `state_dict` does not hold is spoiled in the second model: tensors that are kept on a module without being
    registered, and modules hidden in plain lists. Constants that the constructor makes again are left alone: where the
    constructor can be called again, what it makes twice the same; else tensors of 0, 1 and infinity, and ordered
    integers.
    """

    def answers(model: AutoregressiveModel) -> dict[str, Tensor]:
        return {"forward": subject.forward(subject.x, model=model), "step": _stepped(subject, model)}

    return save_and_load(subject, subject.model, answers)


def save_and_load(choices: Choices, model: N, answers: Callable[[N], dict[str, Tensor]]) -> str:
    """Raise `Violation` unless a copy with other weights gives the same answers once the `state_dict` is loaded.

    Args:
        choices: of the other weights.
        model: the one that is saved.
        answers: of a model, by the name of the method that gives them.
    """
    expected = answers(model)
    saved = _through_bytes(model.state_dict())
    other = independent_copy(model)
    transient = {id(tensor) for tensor in transient_buffers(other).values()}
    for tensor in [*other.parameters(), *other.buffers()]:
        if id(tensor) not in transient:
            _spoil(choices, tensor)
    hidden = _spoil_hidden(choices, model, other)
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
            raise Violation(f"{name} of the loaded model differs by {gap:.3g} nats{where}")
    return f"{len(saved)} tensors, through safetensors into a model with other weights"


def _stepped(subject: Subject, model: AutoregressiveModel) -> Tensor:
    first, state = model.step(None, model.initial_state(len(subject.x), subject.context))
    second, _ = model.step(subject.x[:, 0], state)
    return torch.stack([subject.values(first, 1), subject.values(second, 1)], 1)


def _through_bytes(state: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: value.detach().clone().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in state.items() if name not in tensors}
    loaded = load(save(tensors))
    return {name: others[name] if name in others else loaded[name].to(state[name].device) for name in state}


def _spoil(choices: Choices, tensor: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.data = tensor + 1 + choices.normal(tensor.shape).to(tensor.dtype)
    elif tensor.dtype == torch.bool:
        tensor.data = ~tensor
    elif tensor.numel() > 1:  # an order stays an order, an index stays in range
        tensor.data = tensor.flatten().flip(0).roll(1).view(tensor.shape)


def _spoil_hidden(choices: Choices, model: nn.Module, other: nn.Module) -> list[str]:
    """Spoil what is state and not registered; the paths."""
    rebuilt = _rebuilt(model)
    spoiled = []
    for path, tensor in _unsaved(other):
        if _is_state(path, tensor, rebuilt, transient=path in transient_buffers(other)):
            _spoil_in_place(choices, tensor)
            spoiled.append(path)
    return spoiled


def _spoil_in_place(choices: Choices, tensor: Tensor) -> None:
    spoiled = tensor.detach().clone()
    _spoil(choices, spoiled)
    tensor.detach().copy_(spoiled)


def _unsaved(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from hidden_tensors(model).items()
    yield from transient_buffers(model).items()


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
    if not any(True for _ in _unsaved(model)):
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
        built.append(
            {path: tensor.double() if tensor.is_floating_point() else tensor for path, tensor in _unsaved(twin)}
        )
    return built
