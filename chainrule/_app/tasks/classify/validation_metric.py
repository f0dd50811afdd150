"""Labels of held-out rows, and how right they are."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from chainrule._modes import device_of
from chainrule.state import map_state
from chainrule.training import MetricValue, ValidationMetric
from chainrule.training._validation import Rows

if TYPE_CHECKING:
    from chainrule._base import TrainableModel
    from chainrule.data import Batch
    from chainrule.models import SequenceClassifier

ROWS = 128  # of a batch that is only read
_SHOWN = 2  # wrong answers at each validation
_WIDTH = 90  # characters of a text that is shown


@torch.no_grad()
def label_log_probs(model: "SequenceClassifier", batches: Iterable["Batch"]) -> Tensor:
    """Return log p(label | row) of every row, (N, C) nats on the CPU; expects a model in evaluation mode."""
    device = device_of(model)
    contexts = (map_state(lambda leaf: leaf.to(device), batch.context) for batch in batches)
    return torch.cat([model(context).logits.float().cpu() for context in contexts])


def label_metric(
    names: Sequence[str],
    true: Tensor,
    batches: Callable[[Rows], Iterable["Batch"]],
    describe: Callable[[int], tuple[str, str]],
    *,
    prefer_later: bool = False,
) -> ValidationMetric:
    """Measure accuracy on held-out rows, and show the most confident mistakes."""

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[Tensor]:
        return list(label_log_probs(cast("SequenceClassifier", model), batches(rows)))

    def compare(rows: Rows, answers: Sequence[Tensor], step: int) -> MetricValue:
        log_probs, right = torch.stack(list(answers)), true[rows]
        lines = []
        for index, predicted, share in surest_mistakes(log_probs, right, _SHOWN):
            where, what = describe(int(rows[index]))
            answered = f"{where}: {names[predicted]} {share:.0%}, is {names[int(right[index])]}"
            lines.append(f"{answered}: {shortened(what)}" if what else answered)
        accuracy = float((log_probs.argmax(1) == right).cpu().double().mean())
        error = (accuracy * (1 - accuracy) / len(right)) ** 0.5
        return MetricValue("accuracy", accuracy, "\n".join(lines), margin=error if prefer_later else 0.0)

    return ValidationMetric(len(true), answer, compare)


def surest_mistakes(log_probs: Tensor, true: Tensor, most: int) -> list[tuple[int, int, float]]:
    """List the most confident wrong predictions: row, predicted label, its probability.

    >>> surest_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log(), torch.tensor([1, 1]), most=1)
    [(0, 0, 0.8999999761581421)]
    """
    shares, predicted = log_probs.exp().max(1)
    wrong = (predicted != true).nonzero().squeeze(1)
    order = wrong[shares[wrong].argsort(descending=True, stable=True)][:most]
    return [(row, int(predicted[row]), float(shares[row])) for row in order.tolist()]


def shortened(text: str) -> str:
    """Cut a text to one short line."""
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
