"""`chainrule inspect RUN`: look inside a trained model."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Inspects
from chainrule.tasks.display import Switch, Verb
from chainrule.tasks.task import Task


def inspect_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb for a task; None where the task has nothing to look into."""
    if issubclass(task, Inspects) and not task.writes_page:
        return inspect(task, out=Annotated[Path | None, Parameter(parse=False)])
    return inspect(task)


@offered(Inspects, "Inspection")
def inspect(
    run: Inspects,
    data: Input | None = None,
    /,
    *,
    out: Path | None = None,
    options: Any,
    seed: int = 0,
    json: Switch = False,
) -> None:
    """Inspect.

    Args:
        data: To read in place of held-out data.
        out: The page, a name that ends in .html; report.html in the run directory if not given.
        seed: Seed of random choices.
        json: Print all findings as one JSON object, and nothing else, on standard output.
    """
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"--seed: expected a whole number from 0 to {(1 << 63) - 1}, got {seed}")
    show_answer(run.inspect(data, options, out=out, seed=seed), json=json)
