"""Access to all values of a module, including unregistered ones and those outside its `state_dict`."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def module_values(module: nn.Module) -> list[tuple[str, Any]]:
    """Return every tensor, array and plain value reachable from a module, with its attribute path."""
    found: list[tuple[str, Any]] = []
    _walk(module, "", set(), found)
    return found


def hidden_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are neither parameters nor buffers; NumPy arrays become tensors that share memory."""
    registered = {id(tensor) for tensor in [*module.parameters(), *module.buffers()]}
    hidden = {}
    for path, value in module_values(module):
        if isinstance(value, numpy.ndarray) and value.dtype.kind in "fiu" and value.flags.writeable:
            value = torch.from_numpy(value)
        if isinstance(value, Tensor) and id(value) not in registered:
            hidden[path] = value
    return hidden


def transient_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that `state_dict` omits (`persistent=False`)."""
    return {
        f"{path}.{name}".lstrip("."): part._buffers[name]
        for path, part in module.named_modules()
        for name in sorted(part._non_persistent_buffers_set)
        if part._buffers.get(name) is not None
    }


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Copy all current values of a module."""
    return {path: _copied(value) for path, value in module_values(module)}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, numpy.ndarray) else value


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the paths at which two snapshots differ."""
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


def _walk(value: Any, path: str, seen: set[int], found: list[tuple[str, Any]]) -> None:
    if isinstance(value, (Tensor, numpy.ndarray, *_SCALARS)):
        found.append((path, value))
    elif id(value) not in seen and not _is_code(value):
        seen.add(id(value))
        for name, part in _parts(value):
            _walk(part, f"{path}.{name}" if path else name, seen, found)


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
