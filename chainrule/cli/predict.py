"""`chainrule tag RUN FILE`, and classify, translate, caption, forecast: the answers of a trained model for new data.

The verb is called after the task.
"""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import Input, with_options
from chainrule.tasks.abilities import Predicts
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task


def predict_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task predicts nothing."""
    if not issubclass(task, Predicts):
        return None

    def run_verb(run: Path, data: list[str], options: Any, out: Path | None, json: bool, device: str) -> None:
        opened = task.open(run)
        assert isinstance(opened, Predicts)
        show_answer(opened.predict(data, options, out=out, device=device, json=json), json=json, out=out)

    def predict(
        run: Path,
        file: Input,
        /,
        *,
        options: Any,
        out: Path | None = None,
        json: Annotated[bool, Parameter(negative=())] = False,
        device: str = "auto",
    ) -> None:
        """Predict.

        Args:
            run: The run directory.
            file: The data; - is standard input.
            out: A file to write to; standard output if not given.
            json: Print one JSON object for each.
            device: Where to compute: auto, cpu or cuda.
        """
        run_verb(run, [file], options, out, json, device)

    def predict_several(
        run: Path,
        /,
        *files: str,
        options: Any,
        out: Path | None = None,
        json: Annotated[bool, Parameter(negative=())] = False,
        device: str = "auto",
    ) -> None:
        """Predict.

        Args:
            run: The run directory.
            files: The data.
            out: A file to write to; standard output if not given.
            json: Print one JSON object for each.
            device: Where to compute: auto, cpu or cuda.
        """
        run_verb(run, list(files), options, out, json, device)

    return with_options(predict_several if task.several else predict, task.Prediction)
