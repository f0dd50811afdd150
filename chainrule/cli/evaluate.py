"""`chainrule evaluate RUN DATA`: the predictions of a trained model compared with the right ones."""

from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Evaluates
from chainrule.tasks.display import Switch


@offered(Evaluates, "Evaluation")
def evaluate(
    run: Evaluates,
    data: Input | None = None,
    /,
    *,
    options: Any,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Compare predictions with the right ones.

    Args:
        data: The data.
        json: Print the figures as one JSON object.
    """
    show_answer(run.evaluate(data, options, device=device), json=json, basis=run.basis)
