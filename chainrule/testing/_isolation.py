"""Models apart from all else, in float64 with private random states; access to all values of a module."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode

from chainrule.modes import check_gradients_work, seed_torch

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


# Functions whose results have the default dtype unless they are told another, all of them or those of real numbers.
_FACTORIES = {torch.empty, torch.eye, torch.ones, torch.rand, torch.randn, torch.zeros}
_FACTORIES |= {torch.hann_window, torch.hamming_window, torch.linspace, torch.logspace, torch.normal}
_FACTORIES_OF_REALS = {torch.arange, torch.as_tensor, torch.asarray, torch.full, torch.tensor, torch.scalar_tensor}
_widening: ContextVar[bool] = ContextVar("_widening", default=True)


class Widened(TorchFunctionMode):
    """Mode of one thread that replaces narrower dtypes in a model's code by float64, the default dtype too.

    It replaces those that the model names, as in `one_hot(x).float()`, and those of new tensors and of real results of
    integers, as in `torch.zeros(3)` and `x / 255`. `torch.set_default_dtype` would change them in all threads.

    Attributes:
        replaced: true once the model asked for a narrower dtype.
    """

    replaced = False

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.promote_types or not _widening.get():  # the first only asks
            return func(*args, **(kwargs or {}))
        if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            func, self.replaced = torch.Tensor.double, True
        if torch.dtype in map(type, args) and any(map(_is_narrow, args)):
            args, self.replaced = tuple(torch.float64 if _is_narrow(argument) else argument for argument in args), True
        kwargs = kwargs or {}
        if _is_narrow(kwargs.get("dtype")):
            kwargs, self.replaced = {**kwargs, "dtype": torch.float64}, True
        of_tensors = any(isinstance(argument, Tensor) and argument.is_floating_point() for argument in args)
        if func in _FACTORIES and kwargs.get("dtype") is None and not of_tensors:
            kwargs, self.replaced = {**kwargs, "dtype": torch.float64}, True
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or result.dtype not in _NARROW or of_tensors:
            return result
        if func in _FACTORIES_OF_REALS and kwargs.get("dtype") is None:
            self.replaced = True
            return func(*args, **{**kwargs, "dtype": torch.float64})
        wider = tuple(argument.double() if isinstance(argument, Tensor) else argument for argument in args)
        if any(isinstance(argument, Tensor) for argument in args) and func is not torch.Tensor.view:
            self.replaced = True
            return func(*wider, **kwargs)
        return result


def _is_narrow(argument: Any) -> bool:
    return isinstance(argument, torch.dtype) and argument in _NARROW


_lenient: ContextVar[bool] = ContextVar("_lenient", default=False)


class _Validation:
    """Default of torch's distributions for checking values, except in a thread that is `isolated`.

    There values outside the support get probability 0, no error. `Distribution.set_default_validate_args` would change
    that in all threads.
    """

    def __init__(self, usual: bool):
        self.usual = usual

    def __get__(self, instance: Any, owner: type) -> bool:
        return self.usual and not _lenient.get()


@contextmanager
def isolated(seed: int, device: torch.device, widening: AbstractContextManager | None = None) -> Iterator[None]:
    """Compute in float64 from the random state `seed`; restore all global settings and random states afterwards.

    `widening` is entered instead of `Widened`, which sends every call of torch through Python.
    """
    check_gradients_work()
    if not isinstance(vars(Distribution)["_validate_args"], _Validation):
        Distribution._validate_args = _Validation(Distribution._validate_args)  # type: ignore[assignment]  # as a bool
    lenient = _lenient.set(True)
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        try:
            reseed(seed)
            with widening or Widened():
                yield
        finally:
            _lenient.reset(lenient)
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)


@contextmanager
def as_called() -> Iterator[None]:
    """Inside `isolated`, let the model choose dtypes, also by the default."""
    token = _widening.set(False)
    try:
        yield
    finally:
        _widening.reset(token)


def reseed(seed: int) -> None:
    """Set every global random state; call it only inside `isolated`."""
    seed_torch(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def module_values(module: nn.Module) -> list[tuple[str, Any]]:
    """Return every tensor, array and plain value reachable from a module, with its attribute path."""
    found: list[tuple[str, Any]] = []
    _walk(module, "", set(), found)
    return found


def hidden_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are neither parameters nor buffers; NumPy arrays become tensors that share memory."""
    registered = {id(tensor) for tensor in [*module.parameters(), *module.buffers()]}
    hidden = {}
    for path, value in module_values(module):
        if isinstance(value, numpy.ndarray) and value.dtype.kind in "fiu" and value.flags.writeable:
            value = torch.from_numpy(value)
        if isinstance(value, Tensor) and id(value) not in registered:
            hidden[path] = value
    return hidden


def transient_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that `state_dict` omits (`persistent=False`)."""
    return {
        f"{path}.{name}".lstrip("."): part._buffers[name]
        for path, part in module.named_modules()
        for name in sorted(part._non_persistent_buffers_set)
        if part._buffers.get(name) is not None
    }


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Copy all current values of a module."""
    return {path: _copied(value) for path, value in module_values(module)}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, numpy.ndarray) else value


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the paths at which two snapshots differ."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or not _same(before[path], after[path])
    )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return bool(((left == right) | ((left != left) & (right != right))).all())
    if isinstance(left, numpy.ndarray) and isinstance(right, numpy.ndarray):
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    return type(left) is type(right) and (left == right or left != left)


def _walk(value: Any, path: str, seen: set[int], found: list[tuple[str, Any]]) -> None:
    if isinstance(value, (Tensor, numpy.ndarray, *_SCALARS)):
        found.append((path, value))
    elif id(value) not in seen and not _is_code(value):
        seen.add(id(value))
        for name, part in _parts(value):
            _walk(part, f"{path}.{name}" if path else name, seen, found)


def _is_code(value: Any) -> bool:
    return isinstance(value, (type, ModuleType)) or (callable(value) and not isinstance(value, nn.Module))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        for name, part in vars(value).items():
            if name in ("_parameters", "_buffers", "_modules"):
                yield from part.items()
            elif "hooks" not in name:
                yield name, part
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(value))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
