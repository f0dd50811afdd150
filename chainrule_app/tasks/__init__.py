"""The tasks: which data meets which model. A task is imported when it is used."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.lazy import attach
from chainrule.option_error import OptionError
from chainrule.printing import one_line
from chainrule_app.tasks.config import task_in
from chainrule_app.tasks.run_directory import local_run, read_config

if TYPE_CHECKING:
    from chainrule_app.tasks.caption.run import CaptionRun as CaptionRun
    from chainrule_app.tasks.classify.image_run import ClassifyImagesRun as ClassifyImagesRun
    from chainrule_app.tasks.classify.run import ClassifyRun as ClassifyRun
    from chainrule_app.tasks.forecast.run import ForecastRun as ForecastRun
    from chainrule_app.tasks.image.run import ImageRun as ImageRun
    from chainrule_app.tasks.music.task import MusicTask as MusicTask
    from chainrule_app.tasks.sound.run import SoundRun as SoundRun
    from chainrule_app.tasks.table.run import TableRun as TableRun
    from chainrule_app.tasks.tag.run import TagRun as TagRun
    from chainrule_app.tasks.task import Task
    from chainrule_app.tasks.text.run import TextRun as TextRun
    from chainrule_app.tasks.translate.run import TranslateRun as TranslateRun

_import, _ = attach(__name__)

TASKS: "dict[str, Callable[[], type[Task[Any]]]]" = {
    "text": partial(_import, "TextRun"),
    "table": partial(_import, "TableRun"),
    "image": partial(_import, "ImageRun"),
    "sound": partial(_import, "SoundRun"),
    "music": partial(_import, "MusicTask"),
    "tag": partial(_import, "TagRun"),
    "classify": partial(_import, "ClassifyRun"),
    "classify-images": partial(_import, "ClassifyImagesRun"),
    "translate": partial(_import, "TranslateRun"),
    "caption": partial(_import, "CaptionRun"),
    "forecast": partial(_import, "ForecastRun"),
}
"""Import the class of each task."""
TASK_VERBS = {
    "predict": "Predict any cells of a table from all other cells of their rows.",
    "tag": "Tag sentences: write the tags into their column and keep everything else.",
    "classify": "Label texts: print the line, the label, its probability and the text of each.",
    "translate": "Translate sentences, one per line.",
    "caption": "Write a caption for each image.",
    "forecast": "Forecast what comes after the last row of a file.",
}
"""The line about each verb of a single task, most of them named after it."""


def task_class(name: str) -> "type[Task[Any]]":
    if not isinstance(name, str) or name not in TASKS:
        raise OptionError("task", f"expected one of {', '.join(TASKS)}, got {one_line(f'{name!r:.80}')}")
    return TASKS[name]()


def unrecognised(folder: Path | str) -> ValueError:
    """Return the error for a directory whose task `recognise` does not tell."""
    return ValueError(
        f"{folder}: expected a file, or a directory mostly of images, sounds or MIDI files: for other "
        "data, name the task"
    )


def open_run(path: str | Path) -> "Task[Any]":
    """Open a run of any task: `open_run("runs/x").model()` is the trained model.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: it is no run, or of another format, or was changed.
    """
    path = local_run(path)
    return read_config(path, lambda content: task_class(task_in(content))).open(path)
