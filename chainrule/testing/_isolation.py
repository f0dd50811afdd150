"""Contexts that run a model in float64 with private random states, and restore all global settings."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy
import torch
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode

from chainrule._modes import seed_torch

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


_called: ContextVar[torch.dtype | None] = ContextVar("_called", default=None)  # the caller's default dtype
_widening: ContextVar[bool] = ContextVar("_widening", default=True)


class Widened(TorchFunctionMode):
    """Mode that replaces narrower dtypes in a model's code, such as `one_hot(x).float()`, by float64.

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
        if kwargs and _is_narrow(kwargs.get("dtype")):
            kwargs, self.replaced = {**kwargs, "dtype": torch.float64}, True
        return func(*args, **(kwargs or {}))


def _is_narrow(argument: Any) -> bool:
    return isinstance(argument, torch.dtype) and argument in _NARROW


@contextmanager
def isolated(seed: int, device: torch.device, widening: AbstractContextManager | None = None) -> Iterator[None]:
    """Compute in float64 from the random state `seed`; restore all global settings and random states afterwards.

    `widening` is entered instead of `Widened`, which sends every call of torch through Python.
    """
    dtype, validation = torch.get_default_dtype(), Distribution._validate_args
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    token = _called.set(dtype)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        try:
            torch.set_default_dtype(torch.float64)
            Distribution.set_default_validate_args(False)  # values outside the support get probability 0, no error
            reseed(seed)
            with widening or Widened():
                yield
        finally:
            _called.reset(token)
            torch.set_default_dtype(dtype)
            Distribution.set_default_validate_args(validation)
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)


@contextmanager
def as_called() -> Iterator[None]:
    """Inside `isolated`, restore the caller's default dtype and let the model choose dtypes."""
    default, token = torch.get_default_dtype(), _widening.set(False)
    try:
        torch.set_default_dtype(_called.get() or default)
        yield
    finally:
        torch.set_default_dtype(default)
        _widening.reset(token)


def reseed(seed: int) -> None:
    """Set every global random state; call it only inside `isolated`."""
    seed_torch(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
