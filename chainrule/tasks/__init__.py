"""The tasks: which data meets which model."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from chainrule.tasks.config import task_in
from chainrule.tasks.run_directory import CONFIG, read_config

if TYPE_CHECKING:
    from chainrule.tasks.task import Task

# Imported when they are used; data that several recognise are those of the first.
TASKS = {
    "text": "chainrule.tasks.text.task:TextTask",
    "table": "chainrule.tasks.table.task:TableTask",
    "image": "chainrule.tasks.image.task:ImageTask",
    "sound": "chainrule.tasks.sound.task:SoundTask",
    "tag": "chainrule.tasks.tag.task:TagTask",
    "classify": "chainrule.tasks.classify.task:ClassifyTask",
    "classify-images": "chainrule.tasks.classify_images.task:ClassifyImagesTask",
    "translate": "chainrule.tasks.translate.task:TranslateTask",
    "caption": "chainrule.tasks.caption.task:CaptionTask",
    "forecast": "chainrule.tasks.forecast.task:ForecastTask",
}


def task_class(name: str) -> "type[Task[Any]]":
    """The class of a task.

    Raises:
        ValueError: there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {name!r:.80}")
    module, _, attribute = TASKS[name].partition(":")
    return cast("type[Task[Any]]", getattr(import_module(module), attribute))


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
