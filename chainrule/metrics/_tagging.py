"""Accuracy of tags, and F1 of entities."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


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
