"""Check if compiled loops may run, without importing numba, which takes about a second."""

from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from chainrule.kernels import enabled

RECORDED = 16
"""Elements of sequences on a GPU after which drawing goes on with a recorded step: recording takes as long as four."""
FEW = 16
"""Sequences that compiled loops step side by side in less time than torch (benchmarks/LOG.md)."""
READ = 1 << 18
"""Symbols from which reading them in compiled loops saves the time that loading takes (benchmarks/LOG.md)."""
_LOADING = 0.6
"""Seconds that loading numba and machine code takes, once (benchmarks/LOG.md)."""


def first_compiled(saved: float, count: int | None) -> int | None:
    """Return the element from which compiled loops draw, which save seconds for each; `None` for none.

    If the number of elements is open, it is the one at which the loops would have paid for loading. The request
    decides, not what is loaded, so that equal requests give equal bits.

    >>> first_compiled(2e-3, 200), first_compiled(2e-3, 1000), first_compiled(2e-3, None), first_compiled(0, None)
    (None, 0, 300, None)
    """
    if saved <= 0:
        return None
    elements = round(_LOADING / saved)
    if count is None:
        return elements
    return 0 if count >= elements else None


def compiled_loops(like: Tensor) -> ModuleType | None:
    """Return the compiled loops, or None where plain code must compute.

    That is so without a numba that works, where machine code cannot be kept for the next time, for a weight on another
    device or in another type, under autocast or a dispatch mode, and with `CHAINRULE_KERNELS=off`.
    """
    supported = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
    if not enabled() or not supported or torch.is_autocast_enabled("cpu") or _get_current_dispatch_mode() is not None:
        return None
    if (loops := _imported()) is None:
        return None
    from numba import config

    return loops if _is_kept(config.CACHE_DIR) else None


@cache
def _imported() -> ModuleType | None:
    try:
        from chainrule.kernels import _compiled_loops as loops
    except Exception:  # numba that does not go with this NumPy, Python or processor raises errors of many types
        return None
    return loops


@cache
def _is_kept(setting: str) -> bool:
    """Return whether there is a folder for machine code; finding out is slow, as it reads all files of the package."""
    from chainrule.kernels._machine_code import folder

    return folder(Path(__file__).parent) is not None
