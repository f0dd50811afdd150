"""Options as Python keyword arguments, like the flags of the command line, and training with them."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from io import StringIO
from itertools import chain
from os import PathLike
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError
from chainrule.printing import one_line
from chainrule_app import frames
from chainrule_app.readers.origin import DataSource
from chainrule_app.readers.record_keys import conversation, is_chat
from chainrule_app.tasks.config import Duration, RunConfig, check_options, check_value
from chainrule_app.tasks.options import Seed

if TYPE_CHECKING:
    from chainrule_app.inputs import Inputs
    from chainrule_app.tasks.task import Task


def config_of(
    task: "type[Task[Any]]",
    sources: dict[str, Any],
    model: str | None,
    options: Mapping[str, Any],
    *,
    budget: str | float | None,
    steps: int | None,
    epochs: float | None,
) -> RunConfig:
    """Build the config that keyword arguments describe; each goes to the dataclass that has the field."""
    name = next(iter(task.MODELS)) if model is None else model
    if not isinstance(name, str) or name not in task.MODELS:
        raise OptionError("model", f"expected one of {', '.join(task.MODELS)}, got {_shown(name)}")
    options = in_flags(options)
    budget, steps, epochs = in_flags({"budget": budget, "steps": steps, "epochs": epochs}).values()
    parts = (task.Data, task.MODELS[name].options, task.Training)
    names = [[item.name for item in fields(part)] for part in parts]
    check_known(options, chain(*names), [*task.SOURCES, "task", "model", "out", "budget", "steps", "epochs"])
    data, of_model, training = (
        part(**{key: value for key, value in options.items() if key in own})
        for part, own in zip(parts, names, strict=True)
    )
    return RunConfig(sources, data, name, of_model, Duration.of(budget, steps, epochs, task.BUDGET), training)


def chosen_options(kind: type, options: Mapping[str, Any], inputs: "Inputs") -> Any:
    """Build an options dataclass; in-memory data for an option that names a file are written to one."""
    check_known(options, [item.name for item in fields(kind)], ["seed", "device", "n"])
    paths = {item.name for item in fields(kind) if "Path" in str(item.type)}
    given = {name: options[name] for name in paths & options.keys() if options[name] is not None}
    if isinstance(where := options.get("where"), Mapping):
        options = {**options, "where": frames.cells_of(where, inputs.description)}
    read = {name: inputs.item(data, name) for name, data in given.items()}
    sources = {name: source if isinstance(source, DataSource) else Path(source) for name, source in read.items()}
    chosen = kind(**{**in_flags(options), **sources})
    check_options(chosen)
    return chosen


def in_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Write mappings, quantiles, labels and columns as the command line does, and numbers as Python does.

    >>> in_flags({"types": {"a": "skip", "b, c": "real"}, "seed": 1})
    {'types': 'a=skip,"b, c=real"', 'seed': 1}
    """
    return {name: _in_flag(name, value) for name, value in options.items()}


def _in_flag(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and name in ("types", "where"):
        return _pairs(value)
    value = value.item() if type(value).__module__ == "numpy" and not value.ndim else value
    if name == "prompt" and is_chat(value):
        return f"{conversation(value)}assistant:"
    if name == "columns" and not isinstance(value, str):
        return _line("" if value is None else value)
    if name == "quantiles" and (isinstance(value, list | tuple) or hasattr(value, "tolist")):
        return ",".join(map(str, value))
    names = name in ("label", "target", "tag_key") or name.endswith("column")  # of classes, annotators and columns
    return str(value) if names and type(value) is int else value


def path_of(value: Any, name: str) -> Path:
    """Return an argument as a path; raise ValueError for a value of another type, and for an empty string."""
    if not isinstance(value, str | PathLike) or value == "":
        raise OptionError(name, f"expected a path, got {_shown(value)}")
    return Path(value)


def checked(name: str, hint: Any, value: Any) -> Any:
    """Return an argument that its annotation allows, a number of NumPy as one of Python."""
    plain = _in_flag(name, value)
    check_value(name, hint, plain)
    return plain


def device_name(value: Any) -> str:
    """Return an argument as the name of a device, which may be one of torch."""
    if not isinstance(value, str) and type(value).__module__ != "torch":
        raise OptionError("device", f"expected auto, cpu, cuda, cuda:N or mps, got {_shown(value)}")
    return str(value)


def seed_of(seed: Any) -> int:
    """Return a seed, by default a random one."""
    return randbelow(1 << 31) if seed is None else checked("seed", Seed, seed)


def bytes_of(data: Any) -> bytes:
    """Return the content of a file that was passed; raise ValueError for a value of another type."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    remedy = "data.encode(), or Path(data).read_bytes()" if isinstance(data, str) else "Path(...).read_bytes()"
    raise OptionError("data", f"expected bytes, got {type(data).__name__}", f"pass {remedy} of a file")


def _shown(value: Any) -> str:
    return one_line(f"{value!r:.80}")


def _pairs(values: Mapping[str, Any]) -> str:
    return _line(f"{name}={value}" for name, value in values.items())


def _line(cells: Iterable[str]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def names_given(options: Mapping[str, Any], **others: Any) -> frozenset[str]:
    """Return the names of options that the user gave; `others` count if they are not None."""
    return frozenset([*options, *(name for name, value in others.items() if value is not None)])


def check_known(options: Iterable[str], choices: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise ValueError for the first unknown option, suggesting the nearest known one."""
    names = sorted(set(choices))
    for name in options:
        if name not in names:
            near = get_close_matches(name, [*names, *others], 1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
            raise OptionError(name, "unknown option", hint)


def train_with(
    task: "type[Task[Any]]", request: RunConfig, out: Path | None, given: frozenset[str], **settings: Any
) -> "Task[Any]":
    """Train a run with `train_run`; an interrupted run is saved and returned."""
    from chainrule.training import Callback, Interrupted
    from chainrule_app.training_run import train_run

    callbacks = settings.get("callbacks", ())
    if not isinstance(callbacks, Sequence) or not all(isinstance(each, Callback) for each in callbacks):
        raise OptionError("callbacks", f"expected a list of chainrule.training.Callback, got {_shown(callbacks)}")
    try:
        path = train_run(task, request, out, given, **settings)[0].path
    except Interrupted as stop:
        path = stop.directory
        print(f"Interrupted: step {stop.step} is saved; run.resume() continues.", file=sys.stderr)
    return task.open(path)
