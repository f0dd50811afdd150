"""`chainrule score RUN DATA`: how surprising data are to a trained model."""

from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Scores
from chainrule.tasks.display import Switch


@offered(Scores, "Scoring")
def score(
    run: Scores,
    data: Input,
    /,
    *,
    options: Any,
    sort: Switch = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Score data.

    Args:
        data: The data.
        sort: Most surprising first.
        top: Only so many, the most surprising ones.
        json: Print one JSON object for each.
    """
    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    ranked = sort or top is not None
    answer = run.score(data, options, ranked=ranked, device=device)
    show_answer(answer, ranked=ranked, top=top, json=json, basis=run.basis)
