"""Contexts that run a model in float64 with private random states, and restore all global settings."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy
import torch
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


_called: ContextVar[torch.dtype | None] = ContextVar("_called", default=None)  # the caller's default dtype
_widening: ContextVar[bool] = ContextVar("_widening", default=True)


class _Widened(TorchFunctionMode):
    """Mode that replaces narrower dtypes in a model's code, such as `one_hot(x).float()`, by float64."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not _widening.get():
            return func(*args, **(kwargs or {}))
        if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            func = torch.Tensor.double
        if torch.dtype in map(type, args):
            args = tuple(torch.float64 if _is_narrow(argument) else argument for argument in args)
        if kwargs and _is_narrow(kwargs.get("dtype")):
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **(kwargs or {}))


def _is_narrow(argument: Any) -> bool:
    return isinstance(argument, torch.dtype) and argument in _NARROW


@contextmanager
def isolated(seed: int, device: torch.device) -> Iterator[None]:
    """Compute in float64 from the random state `seed`; restore all global settings and random states afterwards."""
    dtype, validation = torch.get_default_dtype(), Distribution._validate_args
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    token = _called.set(dtype)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        try:
            torch.set_default_dtype(torch.float64)
            Distribution.set_default_validate_args(False)  # values outside the support get probability 0, no error
            reseed(seed)
            with _Widened():
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
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
