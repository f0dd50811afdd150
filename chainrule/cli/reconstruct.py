"""`chainrule reconstruct RUN DATA`: data beside what their codes hold of them."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import Input, with_options
from chainrule.tasks.abilities import Reconstructs
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task


def reconstruct_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task has no model with a code."""
    if not issubclass(task, Reconstructs):
        return None

    def reconstruct(
        run: Path,
        data: Input,
        /,
        *,
        options: Any,
        out: Path | None = None,
        seed: int = 0,
        device: str = "auto",
        json: Annotated[bool, Parameter(negative=())] = False,
    ) -> None:
        """Reconstruct.

        Args:
            run: The run directory.
            data: The data.
            out: The file to write.
            seed: Of a decoder that draws.
            device: Where to compute: auto, cpu or cuda.
            json: Print what was written as one JSON object.
        """
        opened = task.open(run)
        assert isinstance(opened, Reconstructs)
        show_answer(opened.reconstruct(data, options, out=out, seed=seed, device=device), json=json)

    return with_options(reconstruct, task.Reconstruction)
