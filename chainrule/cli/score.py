"""`chainrule score RUN DATA`: how surprising data are to a trained model."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import Input, with_options
from chainrule.tasks.abilities import Scores
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task


def score_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task scores nothing."""
    if not issubclass(task, Scores):
        return None

    def score(
        run: Path,
        data: Input,
        /,
        *,
        options: Any,
        sort: Annotated[bool, Parameter(negative=())] = False,
        top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
        json: Annotated[bool, Parameter(negative=())] = False,
        device: str = "auto",
    ) -> None:
        """Score.

        Args:
            run: The run directory.
            data: The data.
            sort: Most surprising first.
            top: Only so many, the most surprising ones.
            json: Print one JSON object for each.
            device: Where to compute: auto, cpu or cuda.
        """
        if top is not None and top < 1:
            raise ValueError(f"--top: expected a whole number >= 1, got {top}")
        ranked = sort or top is not None
        opened = task.open(run)
        assert isinstance(opened, Scores)
        answer = opened.score(data, options, ranked=ranked, device=device)
        show_answer(answer, ranked=ranked, top=top, json=json, basis=opened.basis)

    return with_options(score, task.Scoring)
