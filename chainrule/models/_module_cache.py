"""The cache of any module as a `State`, and back."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn


def map_cache(change: Callable[[Any], Any], cache: Any) -> Any:
    """The same structure with every tensor and every integer in it replaced, always in the same order.

    Unlike a `State`, a cache may hold positions as integers, and may be an object with attributes.
    """
    match cache:
        case None | bool() | float() | str() | nn.Module():
            return cache
        case Tensor() | int():
            return change(cache)
        case tuple() if hasattr(cache, "_fields"):
            return type(cache)(*(map_cache(change, part) for part in cache))
        case tuple() | list():
            return type(cache)(map_cache(change, part) for part in cache)
    new = copy.copy(cache)
    if new is cache:  # a function or a class
        return cache
    if isinstance(cache, dict):
        new.update({name: map_cache(change, part) for name, part in cache.items()})
    if hasattr(cache, "__dict__"):
        vars(new).update({name: map_cache(change, part) for name, part in vars(cache).items()})
    return new


def parts_of(cache: Any) -> list[Any]:
    """The tensors and integers of a cache, in the order of `map_cache`."""
    parts: list[Any] = []

    def note(part: Any) -> Any:
        parts.append(part)
        return part

    map_cache(note, cache)
    return parts


@dataclass(frozen=True)
class CacheLayout:
    """Where the batch is in each part of a cache: the state holds the parts batch first.

    Attributes:
        template: a cache whose parts are all 0.
        axes: of each part, the axis of the batch, which may hold a multiple of it; `None` if rows share the part.
        integers: of each part, whether it is an integer.
    """

    template: Any
    axes: tuple[int | None, ...]
    integers: tuple[bool, ...]

    @classmethod
    def of(cls, two: Any, three: Any) -> Self:
        """The layout of the caches of a batch of 2 rows and of 3 rows, after equally many symbols."""
        parts = parts_of(two)
        axes = tuple(_batch_axis(*pair) for pair in zip(parts, parts_of(three), strict=True))
        return cls(map_cache(lambda _: 0, two), axes, tuple(isinstance(part, int) for part in parts))

    def pack(self, cache: Any, rows: int) -> list[Tensor]:
        """The state of `rows` rows that holds a cache."""
        parts = parts_of(cache)
        if len(parts) != len(self.axes):
            raise ValueError(f"cache: expected {len(self.axes)} tensors, as after the first symbols, got {len(parts)}")
        return [_batch_first(part, axis, rows) for part, axis in zip(parts, self.axes, strict=True)]

    def unpack(self, state: list[Tensor]) -> Any:
        """A cache that the module may write into: it shares no memory with the state."""
        parts = iter(
            [_as_it_was(*part) for part in zip(state, self.axes, self.integers, strict=True)],
        )
        return map_cache(lambda _: next(parts), self.template)


def _batch_axis(two: Tensor | int, three: Tensor | int) -> int | None:
    if isinstance(two, int) or isinstance(three, int):
        return None
    pairs = enumerate(zip(two.shape, three.shape, strict=True))
    return next((axis for axis, (left, right) in pairs if left != right), None)


def _batch_first(part: Tensor | int, axis: int | None, rows: int) -> Tensor:
    if axis is None:
        shared = torch.as_tensor(part)
        return shared.expand(rows, *shared.shape)
    assert isinstance(part, Tensor)
    return part.unflatten(axis, (rows, part.shape[axis] // rows)).movedim(axis, 0)  # (B*H, ...) -> (B, H, ...)


def _as_it_was(part: Tensor, axis: int | None, integer: bool) -> Tensor | int:
    if integer:
        return int(part[0])
    if axis is None:
        return part[0].clone()
    return part.movedim(0, axis).flatten(axis, axis + 1).clone(memory_format=torch.contiguous_format)
