"""How many words have the right tag."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
