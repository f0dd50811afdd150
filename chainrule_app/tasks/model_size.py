"""The size of a model: it must fit in memory, and agree with its weights file."""

import os
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.option_error import UserError
from chainrule_app.heavy import modes
from chainrule_app.tasks.run_directory import CHECKPOINT, SHARDS, read_header, sealed_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def check_size(
    build: "Callable[[], nn.Module]",
    config: Path,
    weights: Path | None,
    *,
    least: int = 0,
    confirm: str = "",
    shard: bool = False,
) -> int:
    """Count the weights; refuse options of a larger model than the weights file, or than memory allows."""
    if weights is None:
        needed = least if least > memory() // (_WHOLE if shard else _TRAINED) else count_built(build, most=memory())
        check_memory(needed, f"{config}: its options", "restore it from a copy", shard=shard)
        if confirm and needed > _UNCONFIRMED:
            raise UserError(
                f"{config}: nothing is trained yet, and its options make a model of {needed:,} weights",
                f"restore it from a copy, or confirm it with {confirm}",
            )
        return needed
    there = count_weights(weights)
    needed = least if there < least else count_built(build, most=there)
    if there < needed:
        raise ValueError(
            f"{weights}: holds {there} numbers, but {config.name} and the data describe a model of at least "
            f"{needed}: one of the files was changed or comes from another run"
        )
    return needed


def count_built(build: "Callable[[], nn.Module]", most: int) -> int:
    """Count the weights of a model built on the meta device; stop at many more than `most`."""
    _watch_weights()
    counter = _Counter(_OFTEN * most)
    token = _counter.set(counter)
    try:
        with modes.unfilled():
            return sum(weight.numel() for weight in build().parameters())
    except _TooManyError:
        return counter.count
    finally:
        _counter.reset(token)


@dataclass
class _Counter:
    most: int
    count: int = 0


_counter: ContextVar[_Counter | None] = ContextVar("_counter", default=None)  # of the model that this thread counts


@cache
def _watch_weights() -> None:
    """Count every weight that is registered while a thread counts.

    The hook stays: torch calls it for modules of all threads, and fails in those where it comes or goes meanwhile.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    register_module_parameter_registration_hook(_count_weight)


def _count_weight(module: "nn.Module", name: str, weight: "nn.Parameter | None") -> None:
    counter = _counter.get()
    if counter is None or weight is None:
        return
    counter.count += weight.numel()
    if counter.count > counter.most:
        raise _TooManyError


_UNCONFIRMED = 1 << 25  # weights, which take 0.8 GB to train
_OFTEN = 4  # times that a weight may be registered: shared by layers, or replaced


class _TooManyError(Exception):
    """A model has more weights than it may have."""


_WHOLE = 4  # bytes a weight: itself alone, where the rest is divided among processes
_TRAINED = 24  # bytes a weight: itself, its gradient, two moments of AdamW, and a masked copy with its gradient
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(weights: int, what: str, remedy: str, *, shard: bool = False) -> None:
    """Refuse a model that takes more memory to train than there is."""
    needed, there = weights * (_WHOLE if shard else _TRAINED), memory()
    if needed > there:
        raise UserError(
            f"{what} make a model of {weights:,} weights, which takes about {needed / 2**30:,.0f} GiB to train, more "
            f"than the {there / 2**30:,.0f} GiB of this machine",
            remedy,
        )


def memory() -> int:
    """Return the bytes of memory that this process may use, in its container."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="utf-8").strip()).isdecimal():
            limits.append(int(limit))
    return min(limits, default=1 << 62)


def count_weights(path: Path) -> int:
    """Count the numbers of a weights file by its header; of a divided checkpoint, also those of its folder."""
    shards = sealed_record(path).get("shards") if path.name == CHECKPOINT else None
    folder = shards.get("folder") if isinstance(shards, dict) else None
    parts = (path.parent / folder).glob("*.safetensors") if folder in SHARDS else ()
    return sum(map(_count_numbers, (path, *parts)))


def _count_numbers(path: Path) -> int:
    return read_header(
        path,
        lambda file: sum(prod(file.get_slice(name).get_shape()) for name in file.keys()),  # noqa: SIM118  no dict
    )


def count_parameters(path: Path) -> int:
    """Count the parameters of a weights file, without buffers if the file tells them apart."""
    count = sealed_record(path).get("parameters")
    return count if isinstance(count, int) else count_weights(path)
