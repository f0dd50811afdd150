"""Estimate whether a model can be trained in the memory of this machine, before any of it is taken."""

import os
from pathlib import Path

_TRAINED = 24  # bytes a weight: itself, its gradient, two moments of AdamW, and a masked copy with its gradient
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(weights: int, what: str, remedy: str) -> None:
    """Refuse a model that takes more memory to train than there is.

    Args:
        weights: of the model.
        what: the cause of its size, for the error.
        remedy: how to make it smaller.

    Raises:
        ValueError: there is less memory than that.
    """
    needed, there = weights * _TRAINED, memory()
    if needed > there:
        raise ValueError(
            f"{what} make a model of {weights:,} weights, which takes about {needed / 2**30:,.0f} GiB to train, more "
            f"than the {there / 2**30:,.0f} GiB of this machine: {remedy}"
        )


def memory() -> int:
    """Bytes of memory that this process may use: those of the machine, or of its container where it has fewer."""
    found = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="utf-8").strip()).isdecimal():
            found.append(int(limit))
    return min(found, default=1 << 62)
