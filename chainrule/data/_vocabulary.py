"""Vocabulary: the map between text and the symbols 0..V-1 that a model predicts; the symbols of a corpus on disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from chainrule.files import Record, read_record
from chainrule.option_error import OptionError

Ids = npt.NDArray[np.int64]

UNKNOWN, EOS = "<unk>", "<eos>"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Beginning(NamedTuple):
    """A text as symbols; the last may extend past the text."""

    ids: Ids  # the symbols that are read whatever follows the text
    rest: str = ""  # the text after them; empty where `ids` are all of it
    # the sequences of symbols that continue `ids` in texts that begin so, up to the symbol that reaches the end of
    # `rest`, which it may pass
    covers: Sequence[Sequence[int]] = ()


class Vocabulary(Record, ABC):
    r"""A finite set of symbols and the map from text to them and back.

    One rule for the end of a line: where a vocabulary has `<eos>`, the newline *is* `<eos>`. `encode` turns each
    ``\n`` into it and `decode` turns it back, so a line read alone is encoded with its ``\n``.

    Attributes:
        level: the name of the kind of symbol: char, byte, word or bpe.
        unknown: the symbol for anything never seen in training; `None` where every text has its own symbols.
        eos: the symbol that ends a line; `None` if the newline is an ordinary symbol.
    """

    UNKNOWN: ClassVar[str] = UNKNOWN
    """Name of the symbol `unknown`."""

    EOS: ClassVar[str] = EOS
    """Name of the symbol `eos`."""

    level: ClassVar[str]
    cuts_at_spaces: ClassVar[bool]
    """True if a long text must be cut before white space, so that its parts are encoded as in the whole text."""

    reads_any_bytes: ClassVar[bool] = False
    """True if bytes that are not valid UTF-8 can be read too (`read_text` and `read_lines` with `strict=False`)."""

    _FIELDS: ClassVar[dict[str, Any]]
    """The fields of a record of `to_json` by their types, level and format left out."""

    unknown: int | None
    eos: int | None

    @classmethod
    @abstractmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = False, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """Return the vocabulary of a training text that comes in chunks.

        Args:
            chunks: the text, cut anywhere; read once, in bounded memory.
            eos: whether the newline is to be `<eos>`.
            min_count: rarer ones get no symbol.
            vocabulary_size: maximum number of symbols, including special ones; the most frequent ones are kept.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of symbols, V: the size of the support of p(x_t)."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the symbols of a text, (T,) int64."""

    def begin(self, text: str) -> Beginning:
        """Return the symbols of an unfinished text: its last word may be the beginning of a longer symbol."""
        return Beginning(self.encode(text))

    @abstractmethod
    def decode(self, ids: npt.ArrayLike) -> str:
        """Return the text of symbols (T,); `<unk>` becomes U+FFFD, the replacement character, except between words."""

    @abstractmethod
    def token(self, symbol: int) -> str:
        """Return one symbol in printable form: special symbols by name, blanks and line ends visible."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return a record from which `Vocabulary.from_json` builds an equal vocabulary."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build the vocabulary of a record of `to_json`; raise ValueError for any other record.

        Nothing in the record is executed. Called on `Vocabulary` itself, this takes a record of any level.
        """
        if cls is Vocabulary:
            return cast(Self, cls.of_level(content.get("level")).from_json(content))
        return read_record(cls._from_fields, {"level": str, **cls._FIELDS}, content)

    @staticmethod
    def of_level(level: object) -> "type[Vocabulary]":
        """Return the class of vocabularies of a level: char, byte, word or bpe."""
        from chainrule.data._characters import ByteVocabulary, CharVocabulary, WordVocabulary
        from chainrule.data._subwords import BPEVocabulary

        kinds = {kind.level: kind for kind in (CharVocabulary, ByteVocabulary, WordVocabulary, BPEVocabulary)}
        if not isinstance(level, str) or level not in kinds:
            raise OptionError("level", f"expected one of {', '.join(kinds)}, got {level!r:.80}; the file is damaged")
        return kinds[level]

    @classmethod
    def _from_fields(cls, *, level: str, **fields: Any) -> Self:
        """Make a vocabulary of the values of a record, which may not fit together."""
        return cls(**fields)

    def encode_chunks(self, chunks: Iterable[str]) -> Iterator[Ids]:
        """Yield the symbols of a long text in chunks cut anywhere, equal to encoding the whole, in bounded
        memory."""
        yield from map(self.encode, self.cut(chunks))

    def cut(self, chunks: Iterable[str]) -> Iterable[str]:
        """Cut a text that comes in chunks anywhere into chunks that are encoded as in the whole text."""
        return cut_before_space(chunks) if self.cuts_at_spaces else chunks

    def encode_with_lines(self, text: str) -> tuple[Ids, Ids]:
        r"""Return the symbols of a text as `encode` does, and the line in which each begins, counted from 0; (T,) each.

        This version encodes line by line, for levels whose symbols end at a line end at the latest.
        """
        lines = text.split("\n")
        parts = [self.encode(line + "\n") for line in lines[:-1]] + [self.encode(lines[-1])]
        return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])

    def check_ids(self, ids: npt.ArrayLike) -> Ids:
        """`ids` as a (T,) array; `ValueError` where one is outside [0, V)."""
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        if array.size and (array.min() < 0 or array.max() >= len(self)):
            outside = array[(array < 0) | (array >= len(self))][0]
            raise ValueError(f"ids: expected symbols from 0 to {len(self) - 1}, got {outside}")
        return array


def cut_before_space(chunks: Iterable[str], limit: int = 1 << 22) -> Iterator[str]:
    """Cut a text that comes in chunks before runs of white space only, so that no word is cut.

    Before the run, not after it: byte-level BPE glues a space to the word behind it and looks ahead in runs of spaces.
    The run begins with ASCII white space: other white space, such as a no-break space, is part of a word at level word.
    A word of more than `limit` characters is cut every `limit` characters, wherever the chunks end.
    """
    parts: list[str] = []
    held = 0
    for chunk in chunks:
        parts.append(chunk)
        held += len(chunk)
        if held <= limit and " " not in chunk and "\n" not in chunk:
            continue
        text = "".join(parts)
        while len(text) > limit:
            cut = _last_run_of_space(text[:limit]) or limit
            yield text[:cut]
            text = text[cut:]
        if cut := _last_run_of_space(text):
            yield text[:cut]
            text = text[cut:]
        parts, held = [text], len(text)
    if held:
        yield "".join(parts)


# White space as everybody has it: U+001C to U+001F are space to Python alone, and a byte of a word to subwords.
_SPACE = "".join(char for char in map(chr, range(0x3001)) if char.isspace() and not "\x1c" <= char <= "\x1f")
_ASCII_SPACE = " \t\n\r\v\f"


def _last_run_of_space(text: str) -> int:
    """Start of the last run of white space that follows a word and begins with ASCII white space; 0 without one."""
    cut = max(text.rfind(" "), text.rfind("\n"), 0)
    while cut and (text[cut] not in _ASCII_SPACE or text[cut - 1] in _SPACE):
        cut -= 1
    return cut
