"""Accuracy of tags, and F1 of the entities that they mark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class EntityScores:
    """How many entities were found, boundaries and type exactly right.

    Args:
        precision: share of the predicted entities that are right.
        recall: share of the true entities that were predicted.
        f1: their harmonic mean.
        entities: how many there are.
        by_type: F1 and number of the entities of each type, true or predicted.
    """

    precision: float
    recall: float
    f1: float
    entities: int
    by_type: dict[str, tuple[float, int]]


def find_entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The entities that the tags of a sentence mark, read as leniently as conlleval reads them.

    An entity is a longest row of tags of one type with no boundary inside. Every sequence of tags is read: B-X and S-X
    have a boundary before them, E-X and S-X one behind; I-X continues an entity of its type and begins one elsewhere.

    Args:
        tags: in BIO, IOB1 or BIOES, well-formed or not. The type of a bare letter is "_".

    Returns:
        The type of each, its first place and the place behind its last.

    >>> list(find_entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    boundaries = [place for place, pair in enumerate(pairwise(["O", *tags, "O"])) if _is_boundary(*pair)]
    for start, stop in pairwise(boundaries):
        if tags[start] != "O":
            yield _type(tags[start]), start, stop


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Micro-averaged precision, recall and F1 of entities, counted as conlleval does.

    It is the scorer of the shared tasks of CoNLL (Tjong Kim Sang and Buchholz 2000).

    .. math:: F_1 = \\frac{2 P R}{P + R}

    Args:
        gold: true tags of each sentence, in BIO or BIOES.
        predicted: as many predicted tags of each.

    Raises:
        ValueError: the sentences do not agree in number or length.

    >>> scores = entity_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "B-LOC"]])
    >>> scores.f1, entity_scores([["B-PER", "I-PER"]], [["B-PER", "I-PER"]]).f1
    (0.0, 1.0)
    """
    if len(gold) != len(predicted):
        raise ValueError(f"predicted: expected tags of {len(gold)} sentences, got {len(predicted)}")
    true: set[tuple[int, str, int, int]] = set()
    found: set[tuple[int, str, int, int]] = set()
    for number, (row, answer) in enumerate(zip(gold, predicted, strict=True)):
        if len(row) != len(answer):
            raise ValueError(f"predicted: expected {len(row)} tags in sentence {number}, got {len(answer)}")
        true.update((number, *entity) for entity in find_entities(row))
        found.update((number, *entity) for entity in find_entities(answer))
    by_type = {}
    for name in sorted({entity[1] for entity in true | found}):
        of_type = [{entity for entity in entities if entity[1] == name} for entities in (true, found, true & found)]
        by_type[name] = (_ratio(2 * len(of_type[2]), len(of_type[0]) + len(of_type[1])), len(of_type[0]))
    right = len(true & found)
    return EntityScores(
        _ratio(right, len(found)),
        _ratio(right, len(true)),
        _ratio(2 * right, len(true) + len(found)),
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
    """Counts of right and wrong tags.

    Args:
        right: words with the right tag.
        words: all words.
        unknown_right: those of them that were never seen in training.
        unknown_words: how many of them there are.
        confused: pairs of a true tag and the wrong one given, with their number, the most frequent first.
    """

    right: int
    words: int
    unknown_right: int
    unknown_words: int
    confused: tuple[tuple[str, str, int], ...]

    @property
    def accuracy(self) -> float:
        """The share of right tags; nan where there are no words."""
        return self.right / self.words if self.words else float("nan")

    @property
    def unknown_accuracy(self) -> float:
        """The same of words never seen in training."""
        return self.unknown_right / self.unknown_words if self.unknown_words else float("nan")


def tag_accuracy(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]], unknown: Iterable[Sequence[bool]]
) -> TagAccuracy:
    """Compare tags word by word.

    Args:
        gold: true tags of each sentence.
        predicted: as many predicted tags.
        unknown: whether each word was never seen in training.

    Raises:
        ValueError: they do not agree in length.

    >>> scores = tag_accuracy([["DET", "NOUN"]], [["DET", "VERB"]], [[False, True]])
    >>> scores.accuracy, scores.unknown_accuracy, scores.confused
    (0.5, 0.0, (('NOUN', 'VERB', 1),))
    """
    pairs: Counter[tuple[str, str]] = Counter()
    unknown_words = unknown_right = 0
    for true, found, new in zip(gold, predicted, unknown, strict=True):
        for tag, given, is_new in zip(true, found, new, strict=True):
            pairs[tag, given] += 1
            unknown_words += is_new
            unknown_right += is_new and tag == given
    right = sum(count for (tag, given), count in pairs.items() if tag == given)
    wrong = [(tag, given, count) for (tag, given), count in pairs.items() if tag != given]
    wrong.sort(key=lambda item: (-item[2], item[0], item[1]))
    return TagAccuracy(right, sum(pairs.values()), unknown_right, unknown_words, tuple(wrong))
