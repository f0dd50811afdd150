"""`chainrule interpolate RUN A B`: from one input to another through the codes between theirs."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import Input, with_options
from chainrule.tasks.abilities import Interpolates
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task


def interpolate_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task has no model with a code."""
    if not issubclass(task, Interpolates):
        return None

    def interpolate(
        run: Path,
        first: Input,
        last: Input,
        /,
        *,
        options: Any,
        out: Path | None = None,
        seed: int = 0,
        device: str = "auto",
        json: Annotated[bool, Parameter(negative=())] = False,
    ) -> None:
        """Interpolate.

        Args:
            run: The run directory.
            first: Where to begin.
            last: Where to end.
            out: The file to write.
            seed: Of a decoder that draws.
            device: Where to compute: auto, cpu or cuda.
            json: Print what was written as one JSON object.
        """
        opened = task.open(run)
        assert isinstance(opened, Interpolates)
        answer = opened.interpolate((first, last), options, out=out, seed=seed, device=device)
        show_answer(answer, json=json)

    return with_options(interpolate, task.Interpolation)
