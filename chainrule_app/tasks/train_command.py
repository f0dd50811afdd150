"""The command line that trains a run's weights again."""

from collections.abc import Iterator
from dataclasses import fields
from shlex import quote
from typing import TYPE_CHECKING, Any

from chainrule_app.printing import flag, flags_of, quoted
from chainrule_app.tasks.config import IN_MEMORY

if TYPE_CHECKING:
    from chainrule_app.tasks.config import RunConfig
    from chainrule_app.tasks.task import Task


def train_command(run: "Task[Any]") -> str:
    """Return the command that trains the run again: its data, every option that decides its weights, and its folder.

    chainrule chooses an option that the command line does not name, by the speed of the moment, too. So the command
    names the options of the model and of training at their defaults as well. It replaces a budget by the steps that
    were taken, and is empty for a run of a model that was trained elsewhere.
    """
    config, words = run.config, ["chainrule train"]
    if getattr(run.facts, "imported", False):
        return ""
    for name, source in run.SOURCES.items():
        if (path := config.sources[name]) is not None:
            words += [*([] if source.flag == "DATA" else [source.flag]), _data(path)]
    words += ["--task", run.name.replace("classify-images", "classify"), "--model", config.model]
    words += [] if config.init is None else ["--from", quote(config.init.run)]
    return " ".join([*words, flags_of(dict([_length(run), *_decisive(run)])), "--out", quoted(run.path)])


def likeness(config: "RunConfig") -> str:
    """Return what `train_command` trains: in a run with a budget, the learning rate followed the clock."""
    return "the same weights" if config.duration.budget is None else "similar weights: this run followed the clock"


def _data(path: str) -> str:
    """Quote a source for the shell; data in memory have no path."""
    return "DATA" if path.endswith(IN_MEMORY) else quote(path)


def _length(run: "Task[Any]") -> tuple[str, Any]:
    duration = run.config.duration
    if duration.steps is not None or duration.epochs is not None:
        return ("epochs", duration.epochs) if duration.steps is None else ("steps", duration.steps)
    steps = max((record["step"] for record in run.metrics("step")), default=0)
    return ("steps", steps) if steps else ("budget", duration.budget)


def _decisive(run: "Task[Any]") -> Iterator[tuple[str, Any]]:
    """Yield the options of reading that differ from their defaults, and all other options that decide the weights.

    An option at its default that the task refuses beside the others decides nothing.
    """
    config = run.config
    computation = {} if config.computation is None else vars(config.computation)
    for part in (config.data, config.options, config.training):
        for item in fields(part):
            value = computation.get(item.name, getattr(part, item.name))
            spared = part is config.data or item.name in run.FREE or value in (None, "auto")
            if value != item.default or not (spared or _is_refused(run, item.name)):
                yield item.name, _written(value)


def _is_refused(run: "Task[Any]", name: str) -> bool:
    try:
        run.check_asked(run.config, frozenset([flag(name)]))
    except ValueError:
        return True
    return False


def _written(value: Any) -> Any:
    return "none" if value is None else quote(value) if isinstance(value, str) else value
