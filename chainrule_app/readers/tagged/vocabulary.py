"""The words, characters and tags of a tagger."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chainrule.files import Record
from chainrule_app.readers.tagged.conll_file import Sentence
from chainrule_app.readers.tagged.tag_schemes import Scheme, Spelling, find_scheme, find_spelling

UNKNOWN = 0
WORD_CHARACTERS = 32  # of a longer word, its beginning and its end are read
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TaggedVocabulary(Record):
    """Translation of words and tags into numbers and back.

    A word is looked up in lower case; 0 is every word that was never seen. Its characters keep their case, and are
    numbered from 2: 1 is every character that was never seen, and 0 fills the places after the end of a word.
    """

    words: tuple[str, ...]  # in lower case, the most frequent first
    counts: tuple[int, ...]  # occurrences of each in the training sentences
    characters: tuple[str, ...]  # in order
    tags: tuple[str, ...]  # in alphabetical order, "O" first where there is one
    scheme: Scheme | None  # how the tags mark spans; None where they mark none

    def __post_init__(self) -> None:
        for name in ("words", "characters", "tags"):
            items = getattr(self, name)
            if not items or len(set(items)) < len(items):
                raise ValueError(f"{name}: expected at least one, each once, got {len(items)}")
        if len(self.counts) != len(self.words) or min(self.counts) < 1:
            raise ValueError("counts: expected one above 0 for each word")

    @classmethod
    def fit(cls, sentences: Iterable[Sentence]) -> "TaggedVocabulary":
        """Return the vocabulary of training sentences."""
        words: Counter[str] = Counter()
        characters: set[str] = set()
        tags: set[str] = set()
        for sentence in sentences:
            words.update(map(str.lower, sentence.words))
            characters.update(*sentence.words)
            tags.update(sentence.tags)
        ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            tuple(word for word, _ in ordered),
            tuple(count for _, count in ordered),
            tuple(sorted(characters)),
            tuple(sorted(tags, key=lambda tag: (tag != "O", tag))),
            find_scheme(tags),
        )

    @property
    def word_symbols(self) -> int:
        """V, the unknown word counted."""
        return len(self.words) + 1

    @property
    def character_symbols(self) -> int:
        """The greatest number of a character."""
        return len(self.characters) + 1

    def word(self, word: str) -> int:
        """Return the number of a word; 0 where it was never seen."""
        return self._word_numbers.get(word.lower(), UNKNOWN)

    def tag(self, tag: str) -> int:
        """Return the number of a tag; ValueError where it was never seen."""
        try:
            return self._tag_numbers[tag]
        except KeyError:
            listing = ", ".join(self.tags[:40]) + (", ..." if len(self.tags) > 40 else "")
            raise ValueError(f"the tag {tag!r} was not seen in training (tags: {listing})") from None

    def standard(self, tags: Iterable[str]) -> list[str]:
        """Tags of spans as BIO or BIOES name them, however they are spelt; see `Spelling`."""
        assert self.spelling is not None
        return list(map(self.spelling.standard, tags))

    def spell(self, words: Sequence[str]) -> Numbers:
        """Return the characters of words, (N, C), 0 past the end of a word; C is the longest length, at most 32."""
        half = WORD_CHARACTERS // 2
        cut = [word if len(word) <= WORD_CHARACTERS else word[:half] + word[-half:] for word in words]
        rows = np.zeros((len(cut), max(map(len, cut), default=1)), dtype=np.int32)
        numbers = self._character_numbers
        for row, word in zip(rows, cut, strict=True):
            row[: len(word)] = [numbers.get(character, 1) for character in word]
        return rows

    @cached_property
    def spelling(self) -> Spelling | None:
        """The spelling of tags that mark spans; None if they mark no spans."""
        return find_spelling(self.tags) if self.scheme else None

    @cached_property
    def _word_numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, 1)}

    @cached_property
    def _character_numbers(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters, 2)}

    @cached_property
    def _tag_numbers(self) -> dict[str, int]:
        return {tag: number for number, tag in enumerate(self.tags)}
