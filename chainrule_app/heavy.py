"""Heavy modules, imported when they are first used: `--help` and mistakes are answered without them."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["caption_data", "figures", "modes", "music_data", "np", "pair_data", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import torch

    from chainrule import figures, modes
    from chainrule_app.readers import captions as caption_data
    from chainrule_app.readers import music as music_data
    from chainrule_app.readers import pairs as pair_data
else:

    class _Later(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self.__name__), name)

    figures, modes, np, torch = map(_Later, ("chainrule.figures", "chainrule.modes", "numpy", "torch"))
    caption_data, music_data, pair_data = (
        _Later(f"chainrule_app.readers.{name}") for name in ("captions", "music", "pairs")
    )
