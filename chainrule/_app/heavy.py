"""Heavy modules, imported when they are first used: `--help` and mistakes are answered without them."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["modes", "np", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import torch

    from chainrule import _modes as modes
else:

    class _Later(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self.__name__), name)

    modes, np, torch = map(_Later, ("chainrule._modes", "numpy", "torch"))
