"""What the methods of a run stand on: one opened task, its model read once, and data in any form."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from chainrule_app import frames
from chainrule_app.data_sets import split_for
from chainrule_app.heavy import np
from chainrule_app.inputs import Inputs, inputs_of
from chainrule_app.keywords import (
    chosen_options,
)
from chainrule_app.printing import url_of
from chainrule_app.restored_frames import restore
from chainrule_app.results import Result
from chainrule_app.tasks import open_run
from chainrule_app.tasks.capabilities import METHODS, OPTIONS, PREDICTIONS
from chainrule_app.tasks.run_directory import FRAME, ChangedRunError, TemporaryFolder

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task


class Answering:
    """A run's task, opened, and how a method calls it; `Run` adds the methods.

    Args:
        task: what the run learned, with its directory, config and vocabulary or schema; `run.task.name` is its name.
        folder: the temporary folder of the run, if it is in one.
    """

    def __init__(self, task: "Task[Any]", folder: TemporaryFolder | None = None):
        self.task = task
        self._folder = folder
        self._lock = RLock()  # of reading the model, and of `resume` and `save`

    def __getstate__(self) -> dict[str, Any]:
        self.task.check_unchanged()
        temporary, path = self._folder is not None, url_of(self.path) or self.path.resolve()
        return {"identity": self.task.identity, **({"folder": self._folder} if temporary else {"path": path})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder = state.get("folder")
        Answering.__init__(self, open_run(state["path"] if folder is None else folder.path), folder)
        if self.task.identity != state["identity"]:
            raise ChangedRunError(self.path)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.task.path

    def options_of(self, capability: str) -> type | None:
        """Return the dataclass of a method's options; None if it has none."""
        return getattr(self._able(capability), OPTIONS.get(METHODS[capability], ""), None)

    @property
    def capabilities(self) -> list[str]:
        """List the methods that this run's task and model support."""
        lacking = self.task.lacking()
        names = [name for name, own in METHODS.items() if hasattr(self.task, own) and own not in lacking]
        others = {*PREDICTIONS} - {self._verb()}
        return [name for name in names if name not in others]

    @property
    def _can(self) -> str:
        return f"it can {', '.join(sorted([*self.capabilities, 'export', 'report', 'resume', 'save']))}"

    def _verb(self) -> str:
        return self.task.verb or self.task.name

    def _able(self, name: str) -> Any:
        if not isinstance(name, str) or name not in METHODS:
            raise ValueError(f"{name!r:.80}: expected the name of a method that takes options: {', '.join(METHODS)}")
        if not hasattr(self.task, METHODS[name]):
            raise ValueError(f"{name}: a run of the task {self.task.name} cannot do this; {self._can}")
        return self.task

    def _with_model(self) -> "Task[Any]":
        """Return the task with its model, which is read once."""
        with self._lock:
            task = self.task
            if task.loaded is None:
                with _unchanged(task):
                    loaded = task.load().eval()
                task.loaded = loaded
            return task

    @contextmanager
    def _calling(self, *, model: bool = True) -> Iterator[Any]:
        """Give the task for one call, which reads one run alone."""
        task = self._with_model() if model else self.task
        with _unchanged(task):
            yield copy(task)  # calls note on it how the user named their data

    def _answer(
        self,
        name: str,
        data: Any,
        options: Mapping[str, Any],
        *,
        texts: bool = False,  # whether texts in memory need no file
        y: Any = None,  # answers beside the data
        optional: bool = False,  # whether the verb reads data of its own where none are passed
        **settings: Any,
    ) -> Any:
        kind = self.options_of(name)
        assert kind is not None
        with self._calling() as run, inputs_of(run, answers=name == "evaluate") as inputs:
            options = dict(options)
            labels = {"labels": options.pop("labels", None)} if self.task.name in ("image", "classify-images") else {}
            path: Any = None
            data = split_for(data, "test")
            if texts and self.task.name == "text" and not isinstance(data, str | PathLike):
                path = inputs.texts(data)
            elif data is not None or not optional:
                path = inputs.source(data, y=y, **labels)
            chosen = chosen_options(kind, inputs.options_of(kind) | options, inputs)
            return self._settled(getattr(run, name)(path, chosen, **settings), inputs, at_once=isinstance(path, list))

    def _settled(self, result: Any, inputs: Inputs, *, at_once: bool = False) -> Any:
        """Compute a result now if requested, or if its data or run may disappear."""
        if isinstance(result, Result) and (at_once or inputs.items is not None or self._folder is not None):
            len(result)
            return result if inputs.items is None else result.of_items(inputs.items)
        return result

    def _native(self, result: Result, completed: Any = None) -> Any:
        """Return samples in the kind of the data that `fit` received."""
        if result.form in ("images", "sounds", "music"):
            arrays = result.values
            return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays
        if result.form in ("lines", "texts"):
            return result.values
        description = frames.load_description(self.path / FRAME)
        len(result)  # a temporary run may be gone later
        return restore(description, result.cells()) if description else frames.like(completed, result)


@contextmanager
def _unchanged(task: "Task[Any]") -> Iterator[None]:
    """Raise ChangedRunError where the files of a run change before the end, whatever else fails for that reason."""
    task.check_unchanged()
    try:
        yield
    finally:
        task.check_unchanged()
