"""Labels of any data: their columns, figures and mistakes, and the metric that selects weights."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from chainrule_app.heavy import modes, torch
from chainrule_app.printing import shortened
from chainrule_app.results import Column
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.config import CheckedOptions

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.data import Batch
    from chainrule.metrics import ClassificationScores
    from chainrule.models import SequenceClassifier
    from chainrule.training import MetricValue, ValidationMetric
    from chainrule_app.readers.row_order import Rows

_MATRIX = 20  # labels in the confusion matrix at most
ROWS = 128  # of a batch that is only read
_SHOWN = 2  # wrong answers at each validation
_WIDTH = 90  # characters of a text that is shown
_EVEN = log(0.5)


@dataclass(frozen=True)
class TextColumn(CheckedOptions):
    """Option that selects the column of the texts."""

    text_column: str | None = None
    """Column of the texts (name, or number from 1); detected by default."""


def label_columns(top: int, labels: int, parse: Callable[[str], Any] | None = None) -> list[Column]:
    """Return the columns that `label_cells` fills; `parse` makes labels of their names."""
    named = [Column("label", parse=parse), Column("probability", 4)]
    for number in range(2, min(top, labels) + 1):
        named += [Column(f"label_{number}", parse=parse), Column(f"probability_{number}", 4)]
    return [*named, Column("probabilities", shown=False)]


def label_cells(names: Sequence[str], log_probs: Sequence[float], top: int) -> list[Any]:
    """Return the `top` most probable labels with their probabilities, then the probabilities of all labels."""
    order = sorted(range(len(names)), key=lambda label: -log_probs[label])
    cells: list[Any] = [part for label in order[:top] for part in (names[label], exp(log_probs[label]))]
    return [*cells, {name: exp(value) for name, value in zip(names, log_probs, strict=True)}]


def label_figures(scores: "ClassificationScores", unit: str, names: Sequence[str]) -> dict[str, Any]:
    """Return overall and per-label figures and the confusion matrix; `unit` names a row."""
    figures = {
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        f"nats_per_{unit}": scores.nats,
        "calibration_error": scores.calibration_error,
        "labels": {
            name: {"precision": precision, "recall": recall, "f1": f1, f"{unit}s": count}
            for name, (precision, recall, f1, count) in scores.by_label.items()
        },
    }
    if len(names) <= _MATRIX:
        rows = zip(names, scores.confusion, strict=True)
        figures["confusion"] = {true: dict(zip(names, row, strict=True)) for true, row in rows}
    return figures


def several_figures(log_probs: "Tensor", true: "Tensor", names: Sequence[str]) -> dict[str, Any]:
    """Return figures of rows with several labels: exact matches, micro and macro F1, nats, and each label's scores."""
    given, right = log_probs > _EVEN, true > 0
    hits, given_counts, right_counts = ((each).sum(0).double() for each in (given & right, given, right))
    f1 = 2 * hits / (given_counts + right_counts).clamp(min=1)
    labels = {
        name: {"precision": hit / max(told, 1), "recall": hit / max(count, 1), "f1": own, "texts": int(count)}
        for name, hit, told, count, own in zip(
            names, *(each.tolist() for each in (hits, given_counts, right_counts, f1)), strict=True
        )
    }
    nats = -torch.where(right, log_probs.double(), no_scores(log_probs)).sum(1).mean()
    total = float(given_counts.sum() + right_counts.sum())
    return {
        "accuracy": float(right_answers(log_probs, true).double().mean()),
        "micro_f1": 2 * float(hits.sum()) / max(total, 1.0),
        "macro_f1": float(f1[right_counts > 0].mean()) if bool((right_counts > 0).any()) else 0.0,
        "nats_per_text": float(nats),
        "labels": labels,
    }


def figure_notes(figures: dict[str, Any]) -> list[str]:
    """Explain how to read the figures."""
    return ["confusion: a row for each true label, a column for each predicted one"] if "confusion" in figures else []


def label_log_probs(model: "SequenceClassifier", batches: "Iterable[Batch]") -> "Tensor":
    """Return log p(label | row) of every row, (N, C) nats on the CPU; expects a model in evaluation mode.

    Of several labels of a row, each has a probability of its own.
    """
    from chainrule.state import map_state

    device = modes.device_of(model)
    contexts = (map_state(lambda leaf: leaf.to(device), batch.context) for batch in batches)
    with torch.no_grad():
        return torch.cat([label_scores(model, context).float().cpu() for context in contexts])


def label_scores(model: "SequenceClassifier", context: Any) -> "Tensor":
    """Return log p of each label of some rows, (B, C)."""
    logits = model(context).logits
    return logits.log_softmax(-1)[..., 1] if logits.dim() == 3 else logits


def no_scores(log_probs: "Tensor") -> "Tensor":
    """Return log p that a row has not the label, for one that may have several."""
    return torch.log1p(-log_probs.double().exp().clamp(max=1 - 1e-12))


def right_answers(log_probs: "Tensor", true: "Tensor") -> "Tensor":
    """Tell of each row if its label, or all of several, are predicted."""
    if true.dim() == 1:
        return log_probs.argmax(1) == true
    return ((log_probs > _EVEN) == (true > 0)).all(1)


def label_metric(
    names: Sequence[str],
    true: "Tensor",
    batches: "Callable[[Rows], Iterable[Batch]]",
    describe: Callable[[int], tuple[str, str]],
    *,
    prefer_later: bool = False,
    selects: bool = True,
) -> "ValidationMetric":
    """Measure accuracy on held-out rows, and show the most confident mistakes."""
    from chainrule.training import MetricValue, ValidationMetric

    def answer(model: "TrainableModel", rows: "Rows") -> "Sequence[Tensor]":
        return list(label_log_probs(cast("SequenceClassifier", model), batches(rows)))

    def compare(rows: "Rows", answers: "Sequence[Tensor]", step: int) -> "MetricValue":
        log_probs, right = torch.stack(list(answers)), true[rows]
        lines = []
        mistakes = surest_mistakes(log_probs, right, _SHOWN) if right.dim() == 1 else []
        for index, predicted, share in mistakes:
            where, what = describe(int(rows[index]))
            answered = f"{where}: {names[predicted]} {share:.0%}, is {names[int(right[index])]}"
            lines.append(f"{answered}: {shortened(' '.join(what.split()), _WIDTH)}" if what else answered)
        accuracy = float(right_answers(log_probs, right).cpu().double().mean())
        error = (accuracy * (1 - accuracy) / len(right)) ** 0.5
        return MetricValue("accuracy", accuracy, "\n".join(lines), margin=error if prefer_later else 0.0)

    return ValidationMetric(len(true), answer, compare, selects)


def label_baseline(
    model: "SequenceClassifier", batches: "Callable[[], Iterator[tuple[Tensor, Tensor, Tensor]]]", seconds: float
) -> Baseline:
    """Compare nats per text with TF-IDF alone, or with the shares of the labels in training if these are better."""
    device, nats, count, began = modes.device_of(model), {"label frequencies": 0.0}, 0, monotonic()
    own = 0.0
    for inputs, lengths, labels in batches():
        x, context = labels.to(device), {"inputs": inputs.to(device), "lengths": lengths.to(device)}
        answers = {"label frequencies": model.log_prior.expand(len(x), -1)}
        if model.tfidf is not None:
            answers["TF-IDF"] = model.tfidf(context["inputs"], context["lengths"])
        for name, scores in answers.items():
            nats[name] = nats.get(name, 0.0) + float(_lost(scores, x))
        own -= float(model.log_prob(x, context).sum())
        count += len(x)
        if monotonic() - began > seconds:
            break
    name = min(nats, key=nats.__getitem__)
    return Baseline(name, nats[name] / count, own / count, "nats per text")


def _lost(scores: "Tensor", labels: "Tensor") -> "Tensor":
    """Return the nats of labels, or of rows of several."""
    loss = torch.nn.functional
    if labels.dim() == 1:
        return loss.cross_entropy(scores, labels, reduction="sum")
    return loss.binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="sum")


def surest_mistakes(log_probs: "Tensor", true: "Tensor", most: int) -> list[tuple[int, int, float]]:
    """List the most confident wrong predictions: row, predicted label, its probability.

    >>> surest_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log(), torch.tensor([1, 1]), most=1)
    [(0, 0, 0.8999999761581421)]
    """
    shares, predicted = log_probs.exp().max(1)
    wrong = (predicted != true).nonzero().squeeze(1)
    order = wrong[shares[wrong].argsort(descending=True, stable=True)][:most]
    return [(row, int(predicted[row]), float(shares[row])) for row in order.tolist()]
