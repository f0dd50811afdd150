"""`chainrule evaluate RUN DATA`: the predictions of a trained model compared with the right ones."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import Input, with_options
from chainrule.tasks.abilities import Evaluates
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task


def evaluate_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task has nothing to evaluate."""
    if not issubclass(task, Evaluates):
        return None

    def evaluate(
        run: Path,
        data: Input | None = None,
        /,
        *,
        options: Any,
        json: Annotated[bool, Parameter(negative=())] = False,
        device: str = "auto",
    ) -> None:
        """Evaluate.

        Args:
            run: The run directory.
            data: The data.
            json: Print the figures as one JSON object.
            device: Where to compute: auto, cpu or cuda.
        """
        opened = task.open(run)
        assert isinstance(opened, Evaluates)
        show_answer(opened.evaluate(data, options, device=device), json=json, basis=opened.basis)

    return with_options(evaluate, task.Evaluation)
