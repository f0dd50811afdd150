"""Entity F1: the measure of taggers that mark spans."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EntityScores:
    """How many entities were found, boundaries and type exactly right.

    Args:
        precision: share of the predicted entities that are right.
        recall: share of the true entities that were predicted.
        f1: their harmonic mean.
        entities: how many there are.
        by_type: F1 and number of the entities of each type.
    """

    precision: float
    recall: float
    f1: float
    entities: int
    by_type: dict[str, tuple[float, int]]


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Micro-averaged precision, recall and F1 of entities, by seqeval (Nakayama 2018), which counts as conlleval does.

    .. math:: F_1 = \\frac{2 P R}{P + R}

    Args:
        gold: true tags of each sentence, in BIO or BIOES.
        predicted: as many predicted tags of each.

    Raises:
        ValueError: the sentences do not agree in length, or seqeval is not installed.

    >>> scores = entity_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "B-LOC"]])
    >>> scores.f1, entity_scores([["B-PER", "I-PER"]], [["B-PER", "I-PER"]]).f1
    (0.0, 1.0)
    """
    try:
        from seqeval.metrics import classification_report
    except ImportError:
        raise ValueError(
            "entity F1 is computed by seqeval, which is not installed: pip install 'chainrule[metrics]'"
        ) from None
    for number, (true, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(found):
            raise ValueError(f"predicted: expected {len(true)} tags in sentence {number}, got {len(found)}")
    gold, predicted = [list(row) for row in gold], [list(row) for row in predicted]
    if all(tag == "O" for rows in (gold, predicted) for row in rows for tag in row):
        return EntityScores(0.0, 0.0, 0.0, 0, {})
    with warnings.catch_warnings():  # of types that are never predicted: their precision is 0
        warnings.simplefilter("ignore")
        report = classification_report(gold, predicted, output_dict=True, zero_division=0)
    total = report["micro avg"]
    types = {
        name: (float(scores["f1-score"]), int(scores["support"]))
        for name, scores in report.items()
        if not name.endswith(" avg")
    }
    return EntityScores(
        float(total["precision"]), float(total["recall"]), float(total["f1-score"]), int(total["support"]), types
    )
