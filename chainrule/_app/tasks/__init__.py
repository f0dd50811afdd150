"""The tasks: which data meets which model. A task is imported when it is used."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.tasks.config import task_in
from chainrule._app.tasks.run_directory import CONFIG, read_config
from chainrule.data._kinds import is_images, is_sounds, is_table, is_tagged

if TYPE_CHECKING:
    from chainrule._app.tasks.task import Task


def _text() -> "type[Task[Any]]":
    from chainrule._app.tasks.text.task import TextTask

    return TextTask


def _table() -> "type[Task[Any]]":
    from chainrule._app.tasks.table.task import TableTask

    return TableTask


def _image() -> "type[Task[Any]]":
    from chainrule._app.tasks.image.task import ImageTask

    return ImageTask


def _sound() -> "type[Task[Any]]":
    from chainrule._app.tasks.sound.task import SoundTask

    return SoundTask


def _tag() -> "type[Task[Any]]":
    """Tag sentences: write the tags into their column and keep everything else."""
    from chainrule._app.tasks.tag.task import TagTask

    return TagTask


def _classify() -> "type[Task[Any]]":
    """Label texts: print the line, the label, its probability and the text of each."""
    from chainrule._app.tasks.classify.task import ClassifyTask

    return ClassifyTask


def _classify_images() -> "type[Task[Any]]":
    from chainrule._app.tasks.classify_images.task import ClassifyImagesTask

    return ClassifyImagesTask


def _translate() -> "type[Task[Any]]":
    """Translate sentences, one per line."""
    from chainrule._app.tasks.translate.task import TranslateTask

    return TranslateTask


def _caption() -> "type[Task[Any]]":
    """Write a caption for each image."""
    from chainrule._app.tasks.caption.task import CaptionTask

    return CaptionTask


def _forecast() -> "type[Task[Any]]":
    """Forecast what comes after the last row of a file."""
    from chainrule._app.tasks.forecast.task import ForecastTask

    return ForecastTask


TASKS: "dict[str, Callable[[], type[Task[Any]]]]" = {
    "text": _text,
    "table": _table,
    "image": _image,
    "sound": _sound,
    "tag": _tag,
    "classify": _classify,
    "classify-images": _classify_images,
    "translate": _translate,
    "caption": _caption,
    "forecast": _forecast,
}
"""The function that imports each task. Its docstring is the line about the verb of its name, if the task predicts."""
RECOGNISED = {"table": is_table, "image": is_images, "sound": is_sounds, "tag": is_tagged}
"""Tasks recognised by the data's names; the first match wins."""


def task_class(name: str) -> "type[Task[Any]]":
    if name not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {name!r:.80}")
    return TASKS[name]()


def recognise(path: Path) -> str | None:
    """Recognise the task by a file name or a folder's content; None if neither tells."""
    return next((name for name, is_its in RECOGNISED.items() if is_its(path)), None)


def open_run(path: str | Path) -> "Task[Any]":
    """Open a run of any task: `open_run("runs/x").model()` is the trained model.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: it is no run, or of another format, or was changed.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        return task_class("text").open(path)  # says what is wrong
    return task_class(read_config(path / CONFIG, lambda content: _known(task_in(content)))).open(path)


def _known(name: str) -> str:
    task_class(name)
    return name
