"""`chainrule tag RUN FILE`, and classify, translate, caption, forecast: the answers of a trained model for new data.

The verb is called after the task.
"""

from pathlib import Path
from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Predicts
from chainrule.tasks.display import Switch, Verb
from chainrule.tasks.task import Task


def predict_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task predicts nothing."""
    several = issubclass(task, Predicts) and task.several
    return (predict_several if several else predict)(task)


@offered(Predicts, "Prediction")
def predict_several(
    run: Predicts, /, *files: str, options: Any, out: Path | None = None, json: Switch = False, device: Device = "auto"
) -> None:
    """Predict.

    Args:
        files: The data.
        out: A file to write to; standard output if not given.
        json: Print one JSON object for each.
    """
    show_answer(run.predict(list(files), options, out=out, device=device, json=json), json=json, out=out)


@offered(Predicts, "Prediction")
def predict(
    run: Predicts,
    file: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Predict.

    Args:
        file: The data; - is standard input.
        out: A file to write to; standard output if not given.
        json: Print one JSON object for each.
    """
    show_answer(run.predict([file], options, out=out, device=device, json=json), json=json, out=out)
