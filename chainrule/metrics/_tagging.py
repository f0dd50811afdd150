"""Labels: accuracy and calibration of a classifier, accuracy of tags, and F1 of entities."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from chainrule.modes import wide


@dataclass(frozen=True)
class EntityScores:
    """Scores of entities, which count as correct if boundaries and type match exactly.

    Args:
        precision: share of the predicted entities that are correct.
        recall: share of the true entities that were predicted.
        f1: harmonic mean of precision and recall.
        entities: number of true entities.
        by_type: F1 and number of true entities, for each type.
    """

    precision: float
    recall: float
    f1: float
    entities: int
    by_type: dict[str, tuple[float, int]]


def find_entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (type, start, stop) of the entities in a sentence, as leniently as conlleval.

    An entity is a maximal run of tags of one type without a boundary inside. Any sequence of tags is valid: there is a
    boundary before B-X and S-X, and after E-X and S-X; I-X continues an entity of its type, or begins one.

    Args:
        tags: tags in BIO, IOB1 or BIOES, well-formed or not. The type of a bare letter is "_".

    >>> list(find_entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    boundaries = [index for index, pair in enumerate(pairwise(["O", *tags, "O"])) if _is_boundary(*pair)]
    for start, stop in pairwise(boundaries):
        if tags[start] != "O":
            yield _type(tags[start]), start, stop


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Compute micro-averaged precision, recall and F1 of entities.

    It counts like conlleval, the scorer of the CoNLL shared tasks (Tjong Kim Sang and Buchholz 2000).

    .. math:: F_1 = \\frac{2 P R}{P + R}

    Args:
        gold: true tags of each sentence, in BIO or BIOES.
        predicted: predicted tags of each sentence.

    >>> scores = entity_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "B-LOC"]])
    >>> scores.f1, entity_scores([["B-PER", "I-PER"]], [["B-PER", "I-PER"]]).f1
    (0.0, 1.0)
    """
    if len(gold) != len(predicted):
        raise ValueError(f"predicted: expected tags of {len(gold)} sentences, got {len(predicted)}")
    true: set[tuple[int, str, int, int]] = set()
    answers: set[tuple[int, str, int, int]] = set()
    for number, (row, answer) in enumerate(zip(gold, predicted, strict=True)):
        if len(row) != len(answer):
            raise ValueError(f"predicted: expected {len(row)} tags in sentence {number}, got {len(answer)}")
        true.update((number, *entity) for entity in find_entities(row))
        answers.update((number, *entity) for entity in find_entities(answer))
    by_type = {}
    for name in sorted({entity[1] for entity in true | answers}):
        of_type = [{entity for entity in entities if entity[1] == name} for entities in (true, answers, true & answers)]
        by_type[name] = (_ratio(2 * len(of_type[2]), len(of_type[0]) + len(of_type[1])), len(of_type[0]))
    right = len(true & answers)
    return EntityScores(
        _ratio(right, len(answers)),
        _ratio(right, len(true)),
        _ratio(2 * right, len(true) + len(answers)),
        len(true),
        by_type,
    )


def _is_boundary(before: str, after: str) -> bool:
    if "O" in (before, after) or _type(before) != _type(after):
        return True
    return before[0] in "ES" or after[0] in "BS"


def _type(tag: str) -> str:
    return tag[2:] or "_"


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class TagAccuracy:
    """Counts of correct and wrong tags.

    Args:
        right: number of words with the correct tag.
        words: number of words.
        unknown_right: correct words among those never seen in training.
        unknown_words: number of words never seen in training.
        confused: true tag, wrong prediction and count of each confusion, the most frequent first.
    """

    right: int
    words: int
    unknown_right: int
    unknown_words: int
    confused: tuple[tuple[str, str, int], ...]

    @property
    def accuracy(self) -> float:
        """Share of correct tags; NaN without words."""
        return self.right / self.words if self.words else float("nan")

    @property
    def unknown_accuracy(self) -> float:
        """Share of correct tags of words never seen in training."""
        return self.unknown_right / self.unknown_words if self.unknown_words else float("nan")


def tag_accuracy(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]], unknown: Iterable[Sequence[bool]]
) -> TagAccuracy:
    """Compare tags word by word.

    Args:
        gold: true tags of each sentence.
        predicted: predicted tags of each sentence.
        unknown: true for each word never seen in training.

    >>> scores = tag_accuracy([["DET", "NOUN"]], [["DET", "VERB"]], [[False, True]])
    >>> scores.accuracy, scores.unknown_accuracy, scores.confused
    (0.5, 0.0, (('NOUN', 'VERB', 1),))
    """
    pairs: Counter[tuple[str, str]] = Counter()
    unknown_words = unknown_right = 0
    for row, answers, new in zip(gold, predicted, unknown, strict=True):
        for tag, answer, is_new in zip(row, answers, new, strict=True):
            pairs[tag, answer] += 1
            unknown_words += is_new
            unknown_right += is_new and tag == answer
    right = sum(count for (tag, answer), count in pairs.items() if tag == answer)
    wrong = [(tag, answer, count) for (tag, answer), count in pairs.items() if tag != answer]
    wrong.sort(key=lambda item: (-item[2], item[0], item[1]))
    return TagAccuracy(right, sum(pairs.values()), unknown_right, unknown_words, tuple(wrong))


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
    classes, log_probs, labels = len(names), wide(log_probs.detach()), labels.long()
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
    probs = log_probs.exp().clamp(max=_BELOW_ONE)  # torchmetrics would treat values above 1 as scores
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
        nats=-float(log_probs.gather(1, labels.unsqueeze(1)).mean()),
        count=len(labels),
        by_label=by_label,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )
