"""Runs that start from the weights of another: `chainrule train DATA --from RUN`."""

from dataclasses import asdict, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.tasks.config import InitialWeights, RunConfig
from chainrule._app.tasks.display import flag
from chainrule._app.tasks.run_directory import CHECKPOINT, WEIGHTS, task_of

if TYPE_CHECKING:
    from torch import nn

    from chainrule._app.tasks.task import Task

_OF_THE_DATA = frozenset({"validation_fraction"})  # options of reading that the new data may have of their own


def started_from(task: "type[Task[Any]]", asked: RunConfig, path: Path, given: frozenset[str]) -> RunConfig:
    """The config of a run that starts from another run's weights: its way to read data, its model, its size.

    Args:
        task: the class of both.
        asked: the config that the command line describes.
        path: of the other run.
        given: the flags that the user wrote; those of the model may not differ from the other run.

    Raises:
        ValueError: the other run is of another task, has no weights, or has other options.
        FileNotFoundError: there is no such run.
    """
    if (name := task_of(path)) not in (None, task.name):
        raise ValueError(f"--from: {path} is a run of the task {name}, and the data are of {task.name}: add --task")
    old = task.open(path)
    weights = path / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(f"--from: {weights}: no weights yet: train that run first")
    asked_values = {"model": asked.model, **asdict(asked.training), **asdict(asked.data), **asdict(asked.options)}
    old_values = {"model": old.config.model, **asdict(old.data), **asdict(old.config.options)}
    old_values |= old.options_in_weights()
    changed = [
        f"{flag(name)} was {old_values[name]} and is {value}"
        for name, value in asked_values.items()
        if flag(name) in given and name in old_values.keys() - _OF_THE_DATA and old_values[name] != value
    ]
    if changed:
        raise ValueError(f"--from: {path} was trained with other options: {'; '.join(changed)}: leave them out")
    own = {name: getattr(asked.data, name) for name in _OF_THE_DATA if hasattr(asked.data, name)}
    return replace(
        asked,
        data=replace(old.data, **own),
        model=old.config.model,
        options=old.config.options,
        training=replace(asked.training, **old.options_in_weights()),
        init=InitialWeights(str(path), sha256(weights.read_bytes()).hexdigest()),
    )


def flags_of_model(config: RunConfig) -> frozenset[str]:
    """The flags of all options of a model: none is left open in a run that starts from another."""
    return frozenset(flag(item.name) for item in fields(config.options))


def load_initial(run: "Task[Any]", network: "nn.Module") -> None:
    """Copy the weights that a run starts from into its model, unless it has taken steps already.

    Raises:
        ValueError, OSError: they are gone, or were changed since the run was made.
    """
    from chainrule.training import load_weights

    init = run.config.init
    if init is None or (run.path / CHECKPOINT).is_file():
        return
    weights = Path(init.run) / WEIGHTS
    if not weights.is_file() or sha256(weights.read_bytes()).hexdigest() != init.sha256:
        raise ValueError(f"--from: {weights}: gone, or changed since this run was made: restore it, or begin again")
    load_weights(weights, network)
