"""Words as symbols: what stands between white space."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from chainrule.data.vocabulary import EOS, UNKNOWN, Ids, Vocabulary, check_fields, cut_before_space

_MOST_COUNTED = 1_000_000


class WordVocabulary(Vocabulary):
    r"""`<unk>`, `<eos>`, then the words seen, the most frequent first.

    Words are what stands between white space, as they are (no lower-casing, punctuation stays attached). Each newline
    is `<eos>`, in both ways to read a corpus. A literal ``<unk>`` in the text is the unknown word (as in the Penn
    Treebank). `decode` puts one space between words: the text comes back up to the amount of white space.

    Args:
        words: the words seen, each once.

    Example:
        >>> vocabulary = WordVocabulary(["the", "cat"])
        >>> vocabulary.encode("the cat sat\n")
        array([2, 3, 0, 1])
        >>> vocabulary.decode([2, 3, 0, 1])
        'the cat <unk>\n'
    """

    level: ClassVar[str] = "word"
    cuts_at_spaces: ClassVar[bool] = True
    unknown: int = 0
    eos: int = 1

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = _WordIds(zip(self.words, range(2, len(self.words) + 2), strict=True))
        self._ids.pop(UNKNOWN, None)

    @classmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = True, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """The words seen at least `min_count` times, the most frequent if not all fit; `eos` is there in any case.

        Equally frequent words stand in alphabetical order. Beyond a million different words the rarest are forgotten
        while counting, and again whenever the count is full, to keep memory bounded (lossy counting, Manku and
        Motwani 2002).
        """
        counts: Counter[str] = Counter()
        floor = 1
        for chunk in cut_before_space(chunks):
            counts.update(chunk.split())
            while len(counts) > _MOST_COUNTED:
                counts = Counter({word: count for word, count in counts.items() if count > floor})
                floor += 1
        del counts[UNKNOWN]
        kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        return cls(kept if vocabulary_size is None else kept[: max(vocabulary_size - 2, 0)])

    def __len__(self) -> int:
        return len(self.words) + 2

    def encode(self, text: str) -> Ids:
        ids: list[int] = []
        lookup = self._ids.__getitem__
        for number, line in enumerate(text.split("\n")):
            if number:
                ids.append(self.eos)
            ids += map(lookup, line.split())
        return np.array(ids, dtype=np.int64)

    def decode(self, ids: npt.ArrayLike) -> str:
        lines: list[list[str]] = [[]]
        for symbol in self.check_ids(ids).tolist():
            if symbol == self.eos:
                lines.append([])
            else:
                lines[-1].append(UNKNOWN if symbol == self.unknown else self.words[symbol - 2])
        return "\n".join(" ".join(line) for line in lines)

    def token(self, symbol: int) -> str:
        self.check_ids(symbol)
        return (UNKNOWN, EOS)[symbol] if symbol < 2 else self.words[symbol - 2]

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "level": self.level, "words": self.words}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        check_fields(content, cls.level, {"words": list})
        words = content["words"]
        for word in words:
            if not isinstance(word, str) or word.split() != [word] or word == UNKNOWN:
                raise ValueError(f"vocabulary field 'words': expected words, got {word!r}; the file is damaged")
        if len(set(words)) != len(words):
            raise ValueError("vocabulary field 'words': expected each word once; the file is damaged")
        return cls(words)


class _WordIds(dict[str, int]):
    """A dict that answers `<unk>` for what it does not hold, without a Python call for what it holds."""

    def __missing__(self, word: str) -> int:
        return WordVocabulary.unknown
