"""What a classifier is worth on held-out texts."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from chainrule.state import map_state
from chainrule.training.judge import Judge, Judgement, Rows

if TYPE_CHECKING:
    from chainrule.base import LikelihoodModel
    from chainrule.data.batches import Batch
    from chainrule.data.labelled import LabelledTexts
    from chainrule.models import SequenceClassifier

ROWS = 128  # of a batch that is only read
_SHOWN = 2  # wrong answers at each validation
_WIDTH = 90  # characters of a text that is shown


@torch.no_grad()
def label_log_probs(model: "SequenceClassifier", batches: Iterable["Batch"]) -> Tensor:
    """log p(label | text) of every row, (N, C) nats on the CPU; the model should be in evaluation mode."""
    device = next(model.parameters()).device
    contexts = (map_state(lambda leaf: leaf.to(device), batch.context) for batch in batches)
    return torch.cat([model(context).logits.float().cpu() for context in contexts])


def classify_judge(texts: "LabelledTexts", limit: int) -> Judge:
    """The accuracy on the held-out texts, and the wrong answers that were given with most confidence."""
    from chainrule.data.labelled import labelled_evaluation

    names, part = texts.labels.names, texts.valid
    true = torch.from_numpy(part.labels.copy())

    def answer(model: "LikelihoodModel", rows: Rows) -> Sequence[Tensor]:
        batches = labelled_evaluation(part.texts, part.labels, ROWS, limit, rows)
        return list(label_log_probs(cast("SequenceClassifier", model), batches))

    def judge(rows: Rows, answers: Sequence[Tensor], step: int) -> Judgement:
        log_probs, right = torch.stack(list(answers)), true[rows]
        lines = [
            f"line {part.lines[rows[place]]}: {names[given]} {share:.0%}, is {names[right[place]]}: "
            + shortened(texts.valid_texts[rows[place]])
            for place, given, share in surest_mistakes(log_probs, right, _SHOWN)
        ]
        accuracy = float((log_probs.argmax(1) == right).double().mean())
        return Judgement("accuracy", accuracy, "\n".join(lines))

    return Judge(len(true), answer, judge)


def surest_mistakes(log_probs: Tensor, true: Tensor, most: int) -> list[tuple[int, int, float]]:
    """Wrong answers, those with the highest probability first: row, given label, and its probability.

    >>> surest_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log(), torch.tensor([1, 1]), most=1)
    [(0, 0, 0.8999999761581421)]
    """
    shares, given = log_probs.exp().max(1)
    wrong = (given != true).nonzero().squeeze(1)
    order = wrong[shares[wrong].argsort(descending=True, stable=True)][:most]
    return [(row, int(given[row]), float(shares[row])) for row in order.tolist()]


def shortened(text: str) -> str:
    """A text in one line, its end left out where it is long.

    >>> shortened("so\\ngood")
    'so good'
    """
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
