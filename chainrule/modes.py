"""The device, the widest number type and the mode in which a model computes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's parameters, or of its buffers where it has none; else the processor."""
    part = next(chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if part is None else part.device


def check_gradients_work() -> None:
    """Raise ValueError in inference mode, which `torch.enable_grad` does not end."""
    if torch.is_inference_mode_enabled():
        raise ValueError("gradients: torch.inference_mode disables them: call this function outside of it")


@cache
def _widest_of(kind: str) -> torch.dtype:
    if kind in ("cpu", "cuda", "meta"):
        return torch.float64
    try:
        return torch.empty(0, dtype=torch.float64, device=kind).dtype
    except (TypeError, RuntimeError):  # mps raises the first
        return torch.float32


def widest(device: torch.device) -> torch.dtype:
    """Return the widest type of floating-point numbers of a device, float64 or float32."""
    return _widest_of(device.type)


def wide(x: Tensor) -> Tensor:
    """x in the widest type of its device.

    >>> wide(torch.tensor([1.0])).dtype
    torch.float64
    """
    return x.to(widest(x.device))


def seed_torch(seed: int) -> None:
    """Seed all devices as `torch.manual_seed` does, which formats tracebacks where there is no accelerator."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


class _OwnDraws(TorchFunctionMode):
    """Mode of one thread in which functions that draw, and are given no generator, draw from its own."""

    def __init__(self, seed: int):
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWING and kwargs.get("generator") is None:
            tensors = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, Tensor)]
            device = tensors[0].device if tensors else torch.device(kwargs.get("device") or torch.get_default_device())
            if device.type != "meta":
                kwargs = {**kwargs, "generator": self._generator(device)}
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


_DRAWING = {
    *(getattr(torch, name) for name in ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")),
    *(getattr(torch, name) for name in ("poisson", "binomial", "_standard_gamma", "_sample_dirichlet")),
    *(getattr(Tensor, name) for name in ("uniform_", "normal_", "random_", "exponential_", "bernoulli_", "cauchy_")),
    *(getattr(Tensor, name) for name in ("geometric_", "log_normal_", "bernoulli", "multinomial")),
    # Inside these the mode is off.
    *(nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_, nn.init.orthogonal_, nn.init.sparse_),
    *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.xavier_uniform_, nn.init.xavier_normal_),
}


def own_draws(seed: int) -> AbstractContextManager[Any]:
    """In the block, draw what a global generator seeded with `seed` would, and leave the global one as it is.

    Other threads draw at the same time, which seeding and restoring the global generator would disturb.
    """
    return _OwnDraws(seed)


Arguments = ParamSpec("Arguments")
Model = TypeVar("Model", bound=nn.Module)
Result = TypeVar("Result")


def in_evaluation(
    function: Callable[Concatenate[Model, Arguments], Result],
) -> Callable[Concatenate[Model, Arguments], Result]:
    """Return a function of a model that sets evaluation mode while it runs; see `evaluating`."""

    @wraps(function)
    def evaluated(model: Model, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with evaluating(model):
            return function(model, *arguments, **options)

    return cast("Callable[Concatenate[Model, Arguments], Result]", evaluated)


def drawn_in_evaluation(model: nn.Module, draws: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield the draws of a model; it is in evaluation mode during each draw, and not between draws."""
    parts = list(model.modules())
    while True:
        training = [part for part in parts if part.training]  # usually none, at no cost
        try:
            for part in training:
                part.training = False
            drawn = next(draws, None)
        finally:
            for part in training:
                part.training = True
        if drawn is None:
            return
        yield drawn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode in the block, and restore the mode of every submodule afterwards."""
    modes = {part: part.training for part in module.modules()}
    try:  # which Ctrl-C may end at any line
        module.eval()
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


_DRAWS = (torch.Tensor.normal_, nn.init.normal_)


class _Plain(TorchFunctionMode):
    """Mode without two operators that on the meta device import a compiler and algebra, for two seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        if func is torch.empty_like:
            return torch.empty(args[0].shape, dtype=args[0].dtype, **kwargs)
        return func(*args, **kwargs)


@contextmanager
def unfilled() -> Iterator[None]:
    """Build modules on the meta device, or move them from it by `to_empty`."""
    with torch.device("meta"), _Plain():
        yield
