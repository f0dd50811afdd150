"""Labelled texts as symbols (words with character n-grams, characters or bytes) and as the condition of a model."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.files import Record, read_record
from chainrule_app.readers.ragged import Ragged
from chainrule_app.readers.store import Ids, Store, StoreWriter

TextLevel = Literal["word", "char", "byte"]
NGRAMS = range(3, 7)  # lengths, of a word between < and >
_WORD = re.compile(r"[\w'’\-]+|[^\w\s]")
_BYTES = 256
_MOST = 1 << 18  # words or n-grams of a vocabulary
_WORDS_WITH_PART = 3  # in fewer words an n-gram says no more than the word
_LONGEST = 40  # characters of a word that n-grams are made of: what is longer is no word


class TextSymbols(Record):
    r"""From a text to the symbols of its elements, each a word, a character or a byte.

    A word is a run of letters, digits, apostrophes and hyphens, or a single other character; with `lower`, in lower
    case. With n-grams it is a bag: the word itself, then its parts, the runs of 3 to 6 characters of `<word>`
    (Bojanowski et al. 2017), so that a word never seen before is read by its parts. What no symbol knows is `<unk>`,
    number 0.

    Args:
        level: word, char or byte.
        symbols: words or characters seen in training, each once; none for bytes.
        parts: n-grams seen in training, each once; None reads words without.
        lower: whether upper case is read as lower case.

    Raises:
        ValueError: a symbol or n-gram comes twice.

    >>> symbols = TextSymbols.fit(["so good", "so bad, so goods"], "word", min_count=1)
    >>> symbols.tokens("So good!")
    ['so', 'good', '!']
    >>> symbols.encode("so"), symbols.encode("!")
    ((1,), (0,))
    """

    unknown: ClassVar[int] = 0

    def __init__(
        self, level: TextLevel, symbols: Iterable[str], parts: Iterable[str] | None = None, *, lower: bool = True
    ):
        self.level, self.lower = level, lower
        self.symbols = tuple(symbols)
        self.parts = None if parts is None else tuple(parts)
        for listed in (self.symbols, self.parts or ()):
            if len(set(listed)) < len(listed):
                raise ValueError(f"symbols, parts: expected different texts, got {listed!r:.80}")
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols, 1)}
        self._part_numbers = {part: number for number, part in enumerate(self.parts or (), len(self.symbols) + 1)}
        self.encode = lru_cache(maxsize=1 << 16)(self._encode)

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        level: TextLevel,
        *,
        lower: bool = True,
        ngrams: bool = True,
        min_count: int = 2,
    ) -> Self:
        """Return the symbols of training texts: elements seen `min_count` times, and n-grams seen in three words; the
        most frequent 262,144 of either where there are more."""
        if level == "byte":
            return cls(level, (), lower=lower)
        reader = cls(level, (), lower=lower)
        counts = Counter(token for text in texts for token in reader.tokens(text))
        parts = None
        if ngrams and level == "word":
            parts = _most_frequent(Counter(part for token in counts for part in _parts(token)), _WORDS_WITH_PART)
        return cls(level, _most_frequent(counts, min_count), parts, lower=lower)

    def __len__(self) -> int:
        """V."""
        return _BYTES if self.level == "byte" else 1 + len(self.symbols) + len(self.parts or ())

    @property
    def elements(self) -> int:
        """The number of symbols of whole elements, without parts: the first of V."""
        return len(self) - len(self.parts or ())

    def tokens(self, text: str) -> list[str]:
        """Return the elements of a text in printable form."""
        if self.level == "byte":
            raw = text.encode("utf-8", "surrogatepass")
            return [chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in raw]
        if self.lower:
            text = text.lower()
        return _WORD.findall(text) if self.level == "word" else list(text)

    def _encode(self, token: str) -> tuple[int, ...]:
        """Return the symbols of one element: itself, then its known parts; cached."""
        if self.level == "byte":
            return (ord(token) if len(token) == 1 else int(token.removeprefix("\\x"), base=16),)
        itself = self._numbers.get(token, self.unknown)
        if self.parts is None:
            return (itself,)
        return (itself, *(self._part_numbers[part] for part in sorted(_parts(token)) if part in self._part_numbers))

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "level": self.level, "lower": self.lower, "symbols": self.symbols, "parts": self.parts}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build what `to_json` described; raise ValueError for anything else."""
        texts = tuple[str, ...]
        types = {"level": TextLevel, "lower": bool, "symbols": texts, "parts": texts | None}
        return read_record(cls, types, content)


def _most_frequent(counts: Counter[str], least: int) -> list[str]:
    """Entries of at least this count, the most frequent first."""
    frequent = [symbol for symbol, count in counts.items() if count >= least]
    return sorted(frequent, key=lambda symbol: (-counts[symbol], symbol))[:_MOST]


def _parts(word: str) -> set[str]:
    """Return the n-grams of a word between its bounds."""
    bounded = f"<{word[:_LONGEST]}>"
    return {bounded[at : at + size] for size in NGRAMS for at in range(len(bounded) - size + 1)}


Numbers = npt.NDArray[np.integer]
NOTHING = -1  # fills up a bag, as `chainrule.models.SequenceClassifier` reads it


@dataclass(frozen=True)
class EncodedTexts:
    """N texts as numbers."""

    tokens: Ragged  # the elements of each text: symbols, or numbers of bags where there are bags
    bags: Ragged | None  # the symbols of each different element; None where an element is one symbol

    @classmethod
    def of(cls, texts: Iterable[str], symbols: TextSymbols) -> Self:
        """Encode texts; each different word is looked up once."""
        if symbols.parts is None:
            return cls(Ragged.of([symbols.encode(token)[0] for token in symbols.tokens(text)] for text in texts), None)
        seen: dict[str, int] = {}
        tokens = Ragged.of([seen.setdefault(token, len(seen)) for token in symbols.tokens(text)] for text in texts)
        return cls(tokens, Ragged.of(map(symbols.encode, seen)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Ids:
        """(N,) elements of each text."""
        return self.tokens.lengths

    def context(self, rows: Numbers, limit: int | None = None) -> dict[str, Tensor]:
        """Some of the texts: `inputs` (B, T) symbols or (B, T, K) bags, and `lengths` (B,)."""
        inputs, lengths = self.tokens.padded(rows, limit, NOTHING)
        if self.bags is not None:
            kinds, inverse = inputs.unique(return_inverse=True)  # each bag once, and nothing
            real = kinds[kinds != NOTHING]
            bags, _ = self.bags.padded(real.numpy(), fill=NOTHING)
            nothing = bags.new_full((len(kinds) - len(real), max(bags.shape[1], 1)), NOTHING)
            inputs = torch.cat([nothing, bags if bags.shape[1] else nothing[:0]])[inverse]
        return {"inputs": inputs, "lengths": lengths}

    def without_parts(self) -> "EncodedTexts":
        """Return the same texts with the symbol of each element alone."""
        if self.bags is None:
            return self
        themselves = self.bags.values[self.bags.offsets[:-1]]
        return EncodedTexts(Ragged(themselves[self.tokens.values], self.tokens.offsets), None)

    def save(self, writer: StoreWriter, part: str) -> None:
        """Write the arrays as PART.NAME."""
        self.tokens.save(writer, f"{part}.tokens", f"{part}.offsets")
        if self.bags is not None:
            self.bags.save(writer, f"{part}.bags", f"{part}.bag_offsets")

    @classmethod
    def load(cls, store: Store, part: str, symbols: TextSymbols) -> Self:
        """Open what `save` wrote, read from the disk on demand."""
        bags = None
        if symbols.parts is not None:
            bags = Ragged.load(store, f"{part}.bags", f"{part}.bag_offsets", len(symbols))
        kinds = len(symbols) if bags is None else len(bags)
        return cls(Ragged.load(store, f"{part}.tokens", f"{part}.offsets", kinds), bags)
