"""`chainrule sample RUN`: draw from a trained model."""

from pathlib import Path
from secrets import randbelow
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.signature import with_options
from chainrule.tasks.abilities import Samples
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task

_MOST = 1 << 20


def sample_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task draws nothing."""
    if not issubclass(task, Samples):
        return None

    def sample(
        run: Path,
        /,
        *,
        n: Annotated[int | None, Parameter(name=["-n", "--number"])] = None,
        options: Any,
        out: Path | None = None,
        seed: int | None = None,
        device: str = "cpu",
        json: Annotated[bool, Parameter(negative=())] = False,
    ) -> None:
        """Draw.

        Args:
            run: The run directory.
            n: How many.
            out: A file to write.
            seed: The same seed gives the same samples; new ones each time if not given.
            device: Where to compute: auto, cpu or cuda.
            json: Print one JSON object for each.
        """
        count = task.USUAL_NUMBER if n is None else n
        if not 1 <= count <= _MOST:
            raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {count}")
        if seed is not None and not 0 <= seed < 1 << 63:
            raise ValueError(f"--seed: expected a whole number from 0 to {(1 << 63) - 1}, got {seed}")
        opened = task.open(run)
        assert isinstance(opened, Samples)
        chosen = randbelow(1 << 31) if seed is None else seed
        show_answer(opened.sample(count, options, out=out, seed=chosen, device=device, json=json), json=json)

    return with_options(sample, task.Sampling)
