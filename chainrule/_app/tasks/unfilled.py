"""Models without memory and weights, to be counted or loaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

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
