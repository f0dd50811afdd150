"""Characters, bytes or words as symbols."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from chainrule.data._vocabulary import EOS, REPLACEMENT, UNKNOWN, Beginning, Ids, Vocabulary, cut_before_space
from chainrule.printing import one_line

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
    _FIELDS: ClassVar[dict[str, Any]] = {"characters": str, "eos": bool}
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
        """Return the vocabulary of characters seen at least `min_count` times, the most frequent if not all fit."""
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

    def encode_with_lines(self, text: str) -> tuple[Ids, Ids]:
        ends = _code_points(text) == ord("\n")
        return self.encode(text), np.cumsum(ends) - ends

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
    def _from_fields(cls, *, level: str, **fields: Any) -> Self:
        vocabulary = cls(**fields)
        if vocabulary.characters != fields["characters"]:
            raise ValueError("characters: expected each once, in order, with the newline where it is <eos>")
        return vocabulary


def visible(text: str) -> str:
    """`text` with blanks, line ends and control characters made visible."""
    if len(text) == 1 and text != " " and not text.isprintable():
        return repr(text)[1:-1]  # a joiner, a mark or another blank, alone
    return one_line(text).replace(" ", "␣")


def _code_points(text: str) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint32]:
    if text.isascii():  # most text, and four times less to move
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


class ByteVocabulary(Vocabulary):
    r"""The 256 byte values of UTF-8 text; nothing is unknown.

    Bytes that are no UTF-8 reach `encode` as Python's surrogate escapes (how `read_text` gives them where asked not
    to be strict, and how a command line does) and come out as the bytes they were. `decode` shows them as U+FFFD.

    Args:
        eos: whether the newline, byte 10, ends a sequence.

    Example:
        >>> ByteVocabulary().encode("é")
        array([195, 169])
    """

    level: ClassVar[str] = "byte"
    _FIELDS: ClassVar[dict[str, Any]] = {"eos": bool}
    cuts_at_spaces: ClassVar[bool] = False
    reads_any_bytes: ClassVar[bool] = True
    unknown: None = None

    def __init__(self, *, eos: bool = False) -> None:
        self.eos = 10 if eos else None

    @classmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = False, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """Return the fixed vocabulary of all bytes; the text is not read."""
        if min_count > 1 or vocabulary_size is not None:
            raise ValueError("vocabulary_size and min_count: level byte always has its 256 symbols: leave them out")
        return cls(eos=eos)

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> Ids:
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half a surrogate pair has no byte: write it as UTF-8 would, and escapes as bytes
            escaped = text.encode("utf-8", "surrogatepass")
            raw = _ESCAPE.sub(lambda match: bytes([(match[0][1] << 6 | match[0][2] & 0x3F) & 0xFF]), escaped)
        return np.frombuffer(raw, dtype=np.uint8).astype(np.int64)

    def decode(self, ids: npt.ArrayLike) -> str:
        return self.check_ids(ids).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def token(self, symbol: int) -> str:
        self.check_ids(symbol)
        if symbol == self.eos:
            return EOS
        return visible(chr(symbol)) if symbol < 128 else f"\\x{symbol:02x}"

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "level": self.level, "eos": self.eos is not None}


_ESCAPE = re.compile(rb"\xed[\xb2\xb3][\x80-\xbf]")  # U+DC80 to U+DCFF, as UTF-8 would write them


_MOST_COUNTED = 1_000_000


JOINER = "\N{HALFWIDTH BLACK SQUARE}"
"""Begins a piece of a word that follows the piece before without a space, as in OpenNMT's tokenizer."""

# A number with its points, a word with its apostrophes, or one other character.
_PIECE = re.compile(r"\d+(?:[.,]\d+)*(?!\w)|\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*|[^\w]")


def _pieces(word: str) -> list[str]:
    """Return a word's pieces, all but the first behind a joiner; a word with a joiner is unknown."""
    if word == UNKNOWN or JOINER in word:
        return [UNKNOWN]
    first, *rest = _PIECE.findall(word)
    return [first, *(JOINER + piece for piece in rest)]


_WORDS = re.compile(r"\S+", re.ASCII).findall
_COUNTED_TOGETHER = 4  # chunks


class WordVocabulary(Vocabulary):
    r"""`<unk>`, `<eos>`, then the words seen, the most frequent first.

    Words are separated by ASCII white space and kept as they are (no lower-casing, punctuation stays attached, a
    no-break space is part of a word). Each newline is `<eos>`, in both ways to read a corpus. A literal ``<unk>`` in
    the text is the unknown word (as in the Penn Treebank). `decode` puts one space between words: the text comes back
    up to the amount of white space.

    With `split_punctuation` punctuation marks are separate words. One that follows a word without a space begins
    with a joiner, U+FFED, and so does what follows it: `decode` joins them again.

    Args:
        words: the words seen, each once.
        split_punctuation: whether words are split at punctuation; numbers ("3.14") and apostrophes ("don't") are not.

    Example:
        >>> vocabulary = WordVocabulary(["the", "cat"])
        >>> vocabulary.encode("the cat sat\n")
        array([2, 3, 0, 1])
        >>> vocabulary.decode([2, 3, 0, 1])
        'the cat <unk>\n'
        >>> vocabulary = WordVocabulary.fit(['"Well," it said, "well."'], split_punctuation=True)
        >>> vocabulary.split('"Well," it said.')
        ['"', '￭Well', '￭,', '￭"', 'it', 'said', '￭.']
        >>> vocabulary.decode(vocabulary.encode('"Well," it said.'))
        '"Well," it said.'
    """

    level: ClassVar[str] = "word"
    _FIELDS: ClassVar[dict[str, Any]] = {"words": list[str], "split_punctuation": bool}
    cuts_at_spaces: ClassVar[bool] = True
    unknown: int = 0
    eos: int = 1

    def __init__(self, words: Sequence[str], *, split_punctuation: bool = False) -> None:
        self.words, self.split_punctuation = list(words), split_punctuation
        self._ids = _WordIds(zip(self.words, range(2, len(self.words) + 2), strict=True))
        self._ids.pop(UNKNOWN, None)

    @classmethod
    def fit(
        cls,
        chunks: Iterable[str],
        *,
        eos: bool = True,
        min_count: int = 1,
        vocabulary_size: int | None = None,
        split_punctuation: bool = False,
        counted: Callable[[Iterable[str]], Iterable[Mapping[str, int]]] | None = None,
    ) -> Self:
        """Return the words seen at least `min_count` times, the most frequent if not all fit, and always `eos`.

        Equally frequent words are in alphabetical order. Beyond a million different words the rarest are forgotten
        while counting, and again whenever the count is full, to keep memory bounded (lossy counting, Manku and
        Motwani 2002). `counted` counts the words of each chunk of a text that is cut between words, instead of this
        process.
        """
        split = cls([], split_punctuation=split_punctuation).split
        counts: Counter[str] = Counter()
        floor = 1
        cut = cut_before_space(chunks)
        larger = iter(lambda: "".join(islice(cut, _COUNTED_TOGETHER)), "")  # fewer counts to add up
        for words in map(split, larger) if counted is None else counted(larger):
            counts.update(words)
            while len(counts) > _MOST_COUNTED:
                counts = Counter({word: count for word, count in counts.items() if count > floor})
                floor += 1
        del counts[UNKNOWN]
        frequent = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        kept = frequent if vocabulary_size is None else frequent[: max(vocabulary_size - 2, 0)]
        return cls(kept, split_punctuation=split_punctuation)

    def __len__(self) -> int:
        return len(self.words) + 2

    def encode(self, text: str) -> Ids:
        ids: list[int] = []
        lookup = self._ids.__getitem__
        for number, line in enumerate(text.split("\n")):
            if number:
                ids.append(self.eos)
            ids += map(lookup, self.split(line))
        return np.array(ids, dtype=np.int64)

    @staticmethod
    def split_words(text: str) -> list[str]:
        """Return the words between ASCII white space; other space, such as a no-break space, is part of a word."""
        return _WORDS(text)

    def split(self, text: str) -> list[str]:
        """Return the words of a text, known or not."""
        words = self.split_words(text)
        return [piece for word in words for piece in _pieces(word)] if self.split_punctuation else words

    def join(self, words: Iterable[str]) -> str:
        """Return the text of words, with one space between them but where a joiner stands."""
        text = " ".join(words)
        return text.replace(" " + JOINER, "").removeprefix(JOINER) if self.split_punctuation else text

    def begin(self, text: str) -> Beginning:
        """Return the symbols of an unfinished text; an unknown last word is the beginning of a known one."""
        last = self.split(text)[-1:]
        rest = self.join(last)
        if not rest or not text.endswith(rest) or last[0] in self._ids or rest == UNKNOWN:
            return super().begin(text)
        whole = [(number,) for number, word in enumerate(self.words, 2) if word.startswith(last[0])]
        if not whole:
            return super().begin(text)
        return Beginning(self.encode(text.removesuffix(rest)), rest, whole)

    def decode(self, ids: npt.ArrayLike) -> str:
        return self.decode_with(ids, repeat(UNKNOWN))

    def decode_with(self, ids: npt.ArrayLike, unknown: Iterator[str]) -> str:
        """Return the text of symbols (T,), with the next of `unknown` for each unknown word."""
        lines: list[list[str]] = [[]]
        for symbol in self.check_ids(ids).tolist():
            if symbol == self.eos:
                lines.append([])
            else:
                lines[-1].append(next(unknown) if symbol == self.unknown else self.words[symbol - 2])
        return "\n".join(map(self.join, lines))

    def token(self, symbol: int) -> str:
        self.check_ids(symbol)
        return (UNKNOWN, EOS)[symbol] if symbol < 2 else self.words[symbol - 2]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "level": self.level,
            "words": self.words,
            "split_punctuation": self.split_punctuation,
        }

    @classmethod
    def _from_fields(cls, *, level: str, **fields: Any) -> Self:
        words, vocabulary = fields["words"], cls(**fields)
        whole = [word.removeprefix(JOINER) if vocabulary.split_punctuation else word for word in words]
        if UNKNOWN in whole or vocabulary.split(" ".join(whole)) != whole:
            wrong = next(word for word in whole if vocabulary.split(word) != [word] or word == UNKNOWN)
            raise ValueError(f"words: expected words, got {wrong!r:.80}")
        if len(set(words)) != len(words):
            raise ValueError("words: expected each once")
        return vocabulary


class _WordIds(dict[str, int]):
    """A dict that answers `<unk>` for what it does not hold, without a Python call for what it holds."""

    def __missing__(self, word: str) -> int:
        return WordVocabulary.unknown
