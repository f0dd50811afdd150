"""Characters (Unicode code points) as symbols."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from chainrule.data.vocabulary import EOS, REPLACEMENT, UNKNOWN, Ids, Vocabulary, check_fields

_CODE_POINTS = 0x110000


class CharVocabulary(Vocabulary):
    r"""`<unk>`, then the characters seen, in order of their code points.

    Text is not normalised and newlines are not translated: `decode(encode(text)) == text` for characters seen.

    Args:
        characters: the characters seen, each once.
        eos: whether the newline ends a sequence (it is then `<eos>`, and always in the vocabulary).

    Example:
        >>> vocabulary = CharVocabulary("abc")
        >>> vocabulary.encode("cab?")
        array([3, 1, 2, 0])
        >>> vocabulary.decode([3, 1, 2])
        'cab'
    """

    level: ClassVar[str] = "char"
    cuts_at_spaces: ClassVar[bool] = False
    unknown: int = 0

    def __init__(self, characters: str, *, eos: bool = False) -> None:
        seen = set(characters) | ({"\n"} if eos else set())
        self.characters = "".join(sorted(seen))
        codes = _code_points(self.characters)
        # One entry more than the last character seen: every code point beyond is looked up there and is unknown.
        self._ids = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.int64)
        self._ids[codes] = np.arange(1, len(codes) + 1)
        self.eos = self.characters.index("\n") + 1 if eos else None

    @classmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = False, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """The vocabulary of a text: characters seen at least `min_count` times, the most frequent if not all fit."""
        counts = np.zeros(_CODE_POINTS, dtype=np.int64)
        for chunk in chunks:
            seen = np.bincount(_code_points(chunk))
            counts[: len(seen)] += seen
        if eos:
            counts[ord("\n")] = 0  # always there, never counted among the characters to choose from
        codes = np.flatnonzero(counts >= max(min_count, 1))
        if vocabulary_size is not None:
            room = max(vocabulary_size - (2 if eos else 1), 0)
            codes = codes[np.argsort(-counts[codes], kind="stable")[:room]]
        return cls("".join(map(chr, codes)), eos=eos)

    def __len__(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str) -> Ids:
        codes = _code_points(text)
        if codes.itemsize == 1 and len(self._ids) > 128:
            return self._ids[codes]
        return self._ids[np.minimum(codes, len(self._ids) - 1)]

    def decode(self, ids: npt.ArrayLike) -> str:
        symbols = np.array([REPLACEMENT, *self.characters], dtype=object)
        return "".join(symbols[self.check_ids(ids)])

    def token(self, symbol: int) -> str:
        self.check_ids(symbol)
        if symbol == self.unknown:
            return UNKNOWN
        if symbol == self.eos:
            return EOS
        return visible(self.characters[symbol - 1])

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "level": self.level, "characters": self.characters, "eos": self.eos is not None}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        check_fields(content, cls.level, {"characters": str, "eos": bool})
        vocabulary = cls(content["characters"], eos=content["eos"])
        if vocabulary.characters != content["characters"]:
            raise ValueError(
                "vocabulary field 'characters': expected each character once, in order; the file is damaged"
            )
        return vocabulary


def visible(text: str) -> str:
    """`text` with blanks, line ends and control characters made visible.

    >>> visible("a b\\n")
    'a␣b\\\\n'
    """
    return "".join(c if c.isprintable() and c != " " else "␣" if c == " " else repr(c)[1:-1] for c in text)


def _code_points(text: str) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint32]:
    if text.isascii():  # most text, and four times less to move
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
