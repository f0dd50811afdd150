"""Files of a run: `checkpoint.safetensors`, to resume from, and `model.safetensors`, the best weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chainrule._base import AutoregressiveModel
from chainrule.layers._low_rank import merged
from chainrule.state import State, count_rows, flatten, unflatten
from chainrule.tensor_files import read_tensors, write_tensors
from chainrule.training._batch import Batch
from chainrule.training._duration import Position
from chainrule.training._optimiser import moments, restore_moments
from chainrule.training._options import TrainingOptions
from chainrule.training._parallel import Processes
from chainrule.training._sharded_checkpoint import SavedShards

CHECKPOINT = "checkpoint.safetensors"
WEIGHTS = "model.safetensors"


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: Optimizer,
    state: State,
    position: Position,
    options: TrainingOptions,
    steps_per_epoch: int,
    shards: dict[str, Any] | None,
) -> None:
    """Write weights, moments, carried state, counters and options as one file, atomically.

    `shards` is the result of `save_shards`, which has written the parameters and their moments already, or None.
    """
    carried, skeleton = flatten(state)
    if shards is None:
        tensors = _prefixed("model", model.state_dict()) | _prefixed("optimiser", moments(optimiser, model)) | carried
    else:
        tensors = _prefixed("model", _other_weights(model)) | carried
    record = {
        "kind": "checkpoint",
        "position": position.to_json(),
        "options": asdict(options),
        "steps_per_epoch": steps_per_epoch,
        "state": skeleton,
    }
    write_tensors(path, tensors, record if shards is None else record | {"shards": shards})


def _other_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the entries of a model's state dict that are not parameters."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in parameters}


class Saved(NamedTuple):
    """What a checkpoint holds besides the weights."""

    state: State  # carried state, on the CPU
    position: Position
    moments: dict[str, Tensor] | SavedShards

    def restore_moments(self, optimiser: Optimizer, trained: nn.Module) -> None:
        """Restore the moments of an optimiser for the model that it trains, which may be divided."""
        saved = self.moments.moments(trained) if isinstance(self.moments, SavedShards) else self.moments
        restore_moments(optimiser, trained, saved)

    @property
    def folder(self) -> str:
        """Name of the folder with the weights and moments of a divided model; empty without one."""
        return self.moments.folder.name if isinstance(self.moments, SavedShards) else ""


def restore_checkpoint(
    path: Path, model: nn.Module, options: TrainingOptions, steps_per_epoch: int, group: Processes
) -> Saved:
    """Restore `model`, which is whole, and return the rest of the checkpoint; all processes of the group call this."""
    tensors, record = _read(path, "checkpoint")
    position, earlier, earlier_steps = (record.get(name) for name in ("position", "options", "steps_per_epoch"))
    if not isinstance(earlier, dict) or type(earlier_steps) is not int:
        raise ValueError(f"{path}: expected the options and the batches an epoch, got none: restore it from a copy")
    options.check_unchanged(earlier)
    if earlier_steps != steps_per_epoch:
        raise ValueError(
            f"resume: expected the data that the run began with ({earlier_steps} batches an epoch), "
            f"got {steps_per_epoch} batches an epoch: resume with the old data, or start a new run"
        )
    weights = _with_prefix("model", tensors)
    shards = SavedShards(path.parent, record["shards"], group) if "shards" in record else None
    if shards is not None:
        shards.load_weights(model)
        weights = dict(model.state_dict()) | weights
    _copy_weights(path, model, weights)
    state = _carried_state(path, model, tensors, record.get("state"))
    return Saved(state, _position(path, position), _with_prefix("optimiser", tensors) if shards is None else shards)


def check_carried(path: Path, model: nn.Module, state: State, batch: Batch) -> None:
    """Raise ValueError if a chunk follows another whose state a damaged checkpoint lacks."""
    if batch.previous is None or state is not None:
        return
    if isinstance(model, AutoregressiveModel) and model.initial_state(1) is not None:
        raise ValueError(f"{path}: its carried state is missing: the file is damaged, restore it from a copy")


@contextmanager
def reading_state(path: Path, *, restored: bool) -> Iterator[None]:
    """Report an unknown symbol in a restored state as a damaged file."""
    try:
        yield
    except IndexError as error:  # raised by an embedding
        if not restored:
            raise
        raise ValueError(f"{path}: its state does not fit the model ({error}): the file is damaged") from None


def save_weights(path: str | Path, model: nn.Module, about: dict[str, Any]) -> None:
    """Write the weights and a JSON record about them, atomically."""
    weights = merged(model)
    parameters = sum(weights[name].numel() for name, _ in model.named_parameters() if name in weights)
    record = {"kind": "weights", "about": about, "parameters": parameters}
    write_tensors(Path(path), weights, record)


def load_weights(path: str | Path, model: nn.Module) -> dict[str, Any]:
    """Copy saved weights into `model`, on any device, and return their record.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, is not a file of weights, or belongs to another model.
    """
    path = Path(path)
    tensors, record = _read(path, "weights")
    _copy_weights(path, model, tensors)
    about = record.get("about")
    if not isinstance(about, dict):
        raise ValueError(f"{path}: expected a record about the weights, got none: restore it from a copy")
    return about


def _read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, record = read_tensors(path)
    if record.get("kind") != kind:
        raise ValueError(f"{path}: expected a file of kind {kind}, got {record.get('kind')!r:.80}")
    return tensors, record


def _position(path: Path, content: Any) -> Position:
    try:
        return Position.from_json(content)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix('checkpoint: ')}: restore it from a copy") from None


def _carried_state(path: Path, model: nn.Module, tensors: dict[str, Tensor], skeleton: Any) -> State:
    """Rebuild the carried state, which must match the model's initial state except for axes of size 0 (caches)."""
    try:
        state = unflatten(tensors, skeleton)
        if state is not None and isinstance(model, AutoregressiveModel):
            expected, restored = flatten(model.initial_state(count_rows(state))), flatten(state)
            if expected[1] != restored[1]:
                raise ValueError("expected the state of this model, got another")
            for name, tensor in restored[0].items():
                _check_grown(name, tuple(tensor.shape), tuple(expected[0][name].shape))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: its carried state is damaged ({error!s:.200}): restore it from a copy") from None
    return state


def _check_grown(name: str, shape: tuple[int, ...], initial: tuple[int, ...]) -> None:
    if len(shape) != len(initial) or any(first and size != first for size, first in zip(shape, initial, strict=True)):
        raise ValueError(f"expected {name} in shape {initial}, with empty axes of any size, got {shape}")


@torch.no_grad()
def _copy_weights(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    weights = model.state_dict()
    differing = [
        f"{name} is {_shape(tensors.get(name))} in the file and {_shape(weights.get(name))} in the model"
        for name in sorted(weights.keys() | tensors.keys())
        if _shape(weights.get(name)) != _shape(tensors.get(name))
    ]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ValueError(f"{path}: expected weights of the same model, but {'; '.join(differing[:3])}{more}")
    try:
        model.load_state_dict(tensors)
    except ValueError as error:  # of a module that checks what it loads
        raise ValueError(f"{path}: damaged ({error}): restore it from a copy") from None


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else str(tuple(tensor.shape))


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}
