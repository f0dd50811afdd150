"""`chainrule runs [DIR]`: the runs of a folder as a table."""

from pathlib import Path
from typing import Any

from chainrule._app.cli.render import show
from chainrule._app.listing import runs as list_runs
from chainrule._app.tasks.display import Switch, Verb
from chainrule._app.tasks.task import Task


def runs_verb(task: type[Task[Any]]) -> Verb:
    """List runs, of any tasks."""
    return runs


def runs(folder: Path = Path("runs"), /, *, json: Switch = False, csv: Switch = False) -> None:
    """List the runs of a folder: task, model, data, size, minutes, best figure, state.

    Args:
        folder: The folder, with runs in it or in the folders below.
        json: Print one JSON object a run.
        csv: Print the table as CSV.
    """
    show(list_runs(folder), json=json, csv=csv)


runs_verb.__doc__ = runs.__doc__
