"""Checks that results repeat exactly, that seeds fix samples, and that saving preserves a model."""

import inspect
from contextlib import suppress
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._isolation import reseed
from chainrule.testing._module_values import changed, hidden_tensors, snapshot, transient_buffers
from chainrule.testing._subject import M, Subject, Violation, in_type, independent_copy
from chainrule.testing._values import distance


@contract_check(*KINDS)
@torch.no_grad()
def check_reproducible(subject: Subject[M]) -> str:
    """Check that results repeat exactly and leave the module unchanged, and that seeds fix samples and bounds.

    In evaluation mode only methods with a generator are random, and they use no other source: global random states
    neither matter nor change. Another seed, or further use of the same generator, gives other draws.
    """
    batch, before, settings = subject.batch(12), snapshot(subject.model), _settings()
    answers: list[dict[str, Tensor]] = []
    for attempt in (0, 1):
        reseed(1000 + attempt)
        main = {"the answer": subject.numbers(batch), "log_prob": subject.totals(batch)}
        answers.append(main | subject.further(batch))
    for name, numbers in answers[0].items():
        if distance(numbers, answers[1][name]).any():
            raise Violation(f"{name} differs for the same input in evaluation mode")
    drawn = _draw_twice(subject)
    if paths := changed(before, snapshot(subject.model)):
        raise Violation(f"an answer changed the module: {', '.join(paths[:3])}")
    if _settings() != settings:
        raise Violation(
            f"global settings (default dtype, gradient mode, threads) went from {settings} to {_settings()}"
        )
    return f"{', '.join(answers[0])} repeated, under different global random states{drawn}"


def _settings() -> tuple:
    return torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()


def _draw_twice(subject: Subject[M]) -> str:
    generator = subject.generator(1)
    reseed(2000)
    untouched = torch.get_rng_state()
    first = subject.draws(generator)
    if not torch.equal(untouched, torch.get_rng_state()):
        raise Violation(f"{' or '.join(first)} moves the global random state though it was given a generator")
    on = subject.draws(generator)
    reseed(3000)
    again = subject.draws(subject.generator(1))
    for name, draws in first.items():
        if not _same(draws, again[name]):
            raise Violation(f"{name} differs for the same generator seed: it reads another source of randomness")
    reseed(2000)
    others = {"two seeds": subject.draws(subject.generator(2)), "a generator used twice": on}
    for label, other in others.items():
        if first and all(_same(first[name], other[name]) for name in first) and subject.chance_of(first) <= 1e-12:
            raise Violation(f"{', '.join(first)} are the same for {label}: nothing is drawn from the generator")
    return f"; {', '.join(first)} with 2 seeds" if first else ""


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())


@contract_check(*KINDS)
@torch.no_grad()
def check_save_load(subject: Subject[M]) -> str:
    """Check that a `state_dict`, loaded from bytes into a model with other weights, restores the results exactly.

    In the second model the check corrupts values that the `state_dict` does not contain: unregistered tensors of
    modules, and modules hidden in plain lists. It preserves constants that the constructor recreates: values on which
    two calls of the constructor agree or, if it cannot be called again, tensors of 0, 1 and infinity, and ordered
    integers.
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
    with suppress(Exception):  # corrupted weights may be invalid
        answers(other)  # fills caches of the old weights, which must not survive loading
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
    elif tensor.numel() > 1:  # permutations stay permutations, and indices in range
        tensor.data = tensor.flatten().flip(0).roll(1).view(tensor.shape)


def _spoil_hidden(subject: Subject[Any], model: nn.Module, other: nn.Module) -> list[str]:
    """Corrupt the unregistered state, and return its paths."""
    rebuilt, transient, unsaved = _rebuilt(model), transient_buffers(other), _unsaved(other)
    hidden = {
        path: tensor
        for path, tensor in unsaved.items()
        if _is_state(path, tensor, rebuilt, transient=path in transient)
    }
    for tensor in hidden.values():
        spoiled = tensor.detach().clone()
        _spoil(subject, spoiled)
        tensor.detach().copy_(spoiled)
    return list(hidden)


def _unsaved(model: nn.Module) -> dict[str, Tensor]:
    return hidden_tensors(model) | transient_buffers(model)


def _is_state(path: str, tensor: Tensor, rebuilt: list[dict[str, Tensor]], *, transient: bool) -> bool:
    """Return true if a new model with the same arguments would not have this tensor."""
    twins = [tensors.get(path) for tensors in rebuilt]
    if twins and all(twin is not None and twin.shape == tensor.shape for twin in twins):
        first, second = (twin.to(tensor) for twin in twins if twin is not None)
        if not _close(first, second):
            return True
        return not transient and not _close(first, tensor)
    return not transient and not _looks_constant(tensor)


def _close(left: Tensor, right: Tensor) -> bool:
    """Compare up to the precision in which a constant was computed."""
    if not left.is_floating_point():
        return torch.equal(left, right)
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True)


def _looks_constant(tensor: Tensor) -> bool:
    if tensor.is_floating_point():
        return bool(((tensor == 0) | (tensor.abs() == 1) | tensor.isinf()).all())
    flat = tensor.flatten().long()
    return tensor.dtype == torch.bool or bool((flat.diff() >= 0).all()) or bool((flat.diff() <= 0).all())


def _rebuilt(model: nn.Module) -> list[dict[str, Tensor]]:
    """Return the unsaved values of two new models with the same arguments; empty if they cannot be built."""
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
