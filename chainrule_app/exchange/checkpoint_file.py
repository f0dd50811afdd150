"""Checkpoints of other programs: tensors by name, of which none is executed and none overlooked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from chainrule_app.readers.sources import check_file
from chainrule_app.tasks.model_size import memory

_INSIDE = ("model", "state_dict", "model_state_dict", "net")  # where training scripts put the weights
_COMPILED = "_orig_mod."  # torch.compile's
_WRAPPED = "module."  # of DataParallel


class Checkpoint:
    """The tensors of a file by name, in float32 or float64, and what else it holds."""

    def __init__(self, path: Path):
        self.path = check_file(path)
        if self.path.stat().st_size > memory() // 4:
            raise ValueError(
                f"{path}: {self.path.stat().st_size >> 20:,} MiB, more than a quarter of this machine's memory: use a "
                "machine with more"
            )
        content = self._content()
        self.about: Mapping[str, Any] = content
        for name in _INSIDE:
            if isinstance(content.get(name), dict):
                content = content[name]
                break
        self._tensors: dict[str, Tensor] = {}
        self._taken = set[str]()
        for name, value in content.items():
            if isinstance(name, str) and isinstance(value, Tensor) and value.is_floating_point():
                plain = name.removeprefix(_COMPILED).removeprefix(_WRAPPED).removeprefix(_COMPILED)
                self._tensors[plain] = value.float() if value.itemsize < 4 else value
        if not self._tensors:
            raise ValueError(f"{path}: expected a dict of tensors, got none: save model.state_dict()")

    def _content(self) -> dict[str, Any]:
        if self.path.suffix == ".safetensors":
            try:
                return dict(load_file(self.path))
            except (SafetensorError, ValueError, KeyError) as error:
                raise ValueError(f"{self.path}: damaged, or no safetensors file ({error})") from None
        try:
            content = torch.load(self.path, map_location="cpu", weights_only=True)
        except UnpicklingError:
            raise ValueError(
                f"{self.path}: damaged, or a pickle with other Python objects than tensors, which are never loaded: "
                "save model.state_dict() with torch.save, or safetensors"
            ) from None
        except (
            RuntimeError,
            EOFError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise ValueError(f"{self.path}: damaged, or no file of torch.save ({error!s:.120})") from None
        if not isinstance(content, dict):
            raise ValueError(f"{self.path}: expected a dict of tensors, got {type(content).__name__}")
        return content

    def names(self) -> list[str]:
        """Return the names of the tensors, in order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; ValueError where it is absent."""
        if name not in self._tensors:
            raise ValueError(f"{self.path}: expected a tensor {name}, got none: is it a checkpoint of another model?")
        return tuple(self._tensors[name].shape)

    def has(self, name: str) -> bool:
        """Return whether there is a tensor."""
        return name in self._tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of a shape; ValueError where it is absent or has another."""
        actual_shape = self.shape(name)
        if actual_shape != shape:
            raise ValueError(f"{self.path}: {name}: expected shape {shape}, got {actual_shape}")
        self._taken.add(name)
        return self._tensors[name].detach()

    def refuse_others(self, expected: str, *buffers: str) -> None:
        """Raise ValueError where a tensor was not taken, unless its name ends like one of the buffers."""
        others = [name for name in self._tensors if name not in self._taken and not name.endswith(buffers)]
        if others:
            raise ValueError(
                f"{self.path}: {others[0]} {self.shape(others[0])}: expected only {expected}: a model with other parts "
                "is not imported"
            )


def matrix_shape(file: Checkpoint, name: str) -> tuple[int, int]:
    """Return the two sizes of a tensor; ValueError unless it is a matrix."""
    shape = file.shape(name)
    if len(shape) != 2:
        raise ValueError(f"{file.path}: {name}: expected a matrix, got shape {shape}")
    return shape[0], shape[1]


@dataclass(frozen=True)
class Foreign:
    """A model from elsewhere: the name that the task text has for its kind, options and weights."""

    model: str
    options: dict[str, Any]
    weights: dict[str, Tensor]
    assumed: tuple[str, ...] = ()  # what the file does not say, and what was taken for it


def by_default(option: str, value: str | None, default: str, why: str) -> list[str]:
    """Return the line about an option that was not given, if it was not."""
    return [] if value is not None else [f"{option} {default} ({why})"]
