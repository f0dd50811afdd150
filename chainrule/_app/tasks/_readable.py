"""Sources of a run as plain files: what is compressed, several files or standard input is unpacked for the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from chainrule._app.inputs import Inputs
from chainrule._app.tasks.config import RunConfig

if TYPE_CHECKING:
    from typing import Any

    from chainrule._app.tasks.task import Task


def inputs_of(run: "Task[Any]") -> Inputs:
    """The `Inputs` of the verbs and methods of a run."""
    column = getattr(run.data, "text_column", None)
    return Inputs(run.name, rate=getattr(run, "rate", None), text_column=column)


@contextmanager
def readable(task: "type[Task[Any]]", config: RunConfig) -> Iterator[RunConfig]:
    """The config with sources that are plain files, for the length of the block; errors name the sources.

    Raises:
        ValueError, OSError: see `chainrule.data._gather.gather`.
    """
    with Inputs(task.name, text_column=getattr(config.data, "text_column", None)) as inputs:
        plain: dict[str, str | None] = {
            name: inputs.plain(path, name) for name, path in config.sources.items() if path is not None
        }
        yield replace(config, sources=config.sources | plain)
