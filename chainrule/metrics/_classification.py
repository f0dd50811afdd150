"""Accuracy and calibration of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from chainrule._modes import wide

BINS = 15  # bins of the calibration error (Guo et al.)
_BELOW_ONE = 1 - 2**-24  # in float32; torchmetrics would use an extra bin for 1


@dataclass(frozen=True)
class ClassificationScores:
    """Scores of a classifier.

    Args:
        accuracy: share of correct labels.
        macro_f1: mean F1 over the labels that occur.
        calibration_error: mean difference between confidence and accuracy; 0 is perfect.
        nats: mean negative log-probability of the true label.
        count: number of rows.
        by_label: precision, recall, F1 and count of each label.
        confusion: (C, C) counts, a row per true label, a column per predicted label.
    """

    accuracy: float
    macro_f1: float
    calibration_error: float
    nats: float
    count: int
    by_label: dict[str, tuple[float, float, float, int]]
    confusion: tuple[tuple[int, ...], ...]


def classification_scores(log_probs: Tensor, labels: Tensor, names: Sequence[str]) -> ClassificationScores:
    r"""Compute accuracy, macro F1, confusion and calibration error, by torchmetrics (Detlefsen et al. 2022).

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{N} \lvert \mathrm{accuracy}_b - \mathrm{confidence}_b \rvert

    over 15 bins b of equal width of the predicted label's probability (Guo et al. 2017).

    Args:
        log_probs: (N, C) normalised log-probabilities of the labels, nats.
        labels: (N,) true labels, integers in [0, C).
        names: names of the C labels.

    >>> import torch
    >>> scores = classification_scores(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([0, 0]), ["a", "b"])
    >>> scores.accuracy, scores.confusion, round(scores.calibration_error, 3)
    (0.5, ((1, 1), (0, 0)), 0.45)
    """
    try:
        from torchmetrics.functional.classification import (
            multiclass_accuracy,
            multiclass_calibration_error,
            multiclass_confusion_matrix,
            multiclass_f1_score,
        )
    except ImportError:
        raise ValueError(
            "classifications are scored by torchmetrics, which is not installed: pip install torchmetrics"
        ) from None
    classes, labels = len(names), labels.long()
    if classes < 2:
        raise ValueError(f"names: expected at least two labels, got {classes}")
    if log_probs.dim() != 2 or log_probs.shape[1] != classes or labels.shape != log_probs.shape[:1]:
        raise ValueError(
            f"log_probs: expected shape (N, {classes}) with N labels, got {tuple(log_probs.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if not len(labels):
        raise ValueError("labels: expected at least one, got none")
    if not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels: expected integers in [0, {classes}), got {labels.min()} to {labels.max()}")
    probs = wide(log_probs).exp().clamp(max=_BELOW_ONE)  # torchmetrics would treat values above 1 as scores
    confusion = multiclass_confusion_matrix(probs, labels, classes)
    by_label = {}
    for index, name in enumerate(names):
        right, predicted, true = (
            int(n) for n in (confusion[index, index], confusion[:, index].sum(), confusion[index].sum())
        )
        by_label[name] = (
            right / predicted if predicted else 0.0,
            right / true if true else 0.0,
            2 * right / (predicted + true) if predicted + true else 0.0,
            true,
        )
    return ClassificationScores(
        accuracy=float(multiclass_accuracy(probs, labels, classes, average="micro")),
        macro_f1=float(multiclass_f1_score(probs, labels, classes, average="macro")),
        calibration_error=float(multiclass_calibration_error(probs, labels, classes, n_bins=BINS)),
        nats=-float(wide(log_probs).gather(1, labels.unsqueeze(1)).mean()),
        count=len(labels),
        by_label=by_label,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )
