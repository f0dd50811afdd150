"""All values that a module holds, registered or not, in its `state_dict` or not."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def leaves(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Every tensor, array and plain value reachable from a module, with the path of attributes that leads to it."""
    yield from _walk(module, "", set())


def hidden_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that are neither parameters nor buffers; arrays of numpy come as tensors on the same memory."""
    registered = {id(tensor) for tensor in [*module.parameters(), *module.buffers()]}
    found = {}
    for path, leaf in leaves(module):
        if isinstance(leaf, numpy.ndarray) and leaf.dtype.kind in "fiu" and leaf.flags.writeable:
            leaf = torch.from_numpy(leaf)
        if isinstance(leaf, Tensor) and id(leaf) not in registered:
            found[path] = leaf
    return found


def transient_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that `state_dict` leaves out (`persistent=False`)."""
    return {
        f"{path}.{name}".lstrip("."): part._buffers[name]
        for path, part in module.named_modules()
        for name in sorted(part._non_persistent_buffers_set)
        if part._buffers.get(name) is not None
    }


def snapshot(module: nn.Module) -> dict[str, Any]:
    """A copy of everything that a module holds now."""
    return {path: _kept(leaf) for path, leaf in leaves(module)}


def _kept(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    return leaf.copy() if isinstance(leaf, numpy.ndarray) else leaf


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The paths at which two snapshots differ."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or not _same(before[path], after[path])
    )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return bool(((left == right) | ((left != left) & (right != right))).all())
    if isinstance(left, numpy.ndarray) and isinstance(right, numpy.ndarray):
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    return type(left) is type(right) and (left == right or left != left)


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Tensor, numpy.ndarray, *_SCALARS)):
        yield path, value
        return
    if id(value) in seen or _is_code(value):
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield from _walk(part, f"{path}.{name}".lstrip("."), seen)


def _is_code(value: Any) -> bool:
    return isinstance(value, (type, ModuleType)) or (callable(value) and not isinstance(value, nn.Module))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        for name, part in vars(value).items():
            if name in ("_parameters", "_buffers", "_modules"):
                yield from part.items()
            elif "hooks" not in name:
                yield name, part
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(value))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
