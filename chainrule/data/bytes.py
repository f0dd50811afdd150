"""Bytes as symbols: every file is a text at this level."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from chainrule.data.characters import visible
from chainrule.data.vocabulary import EOS, Ids, Vocabulary, check_fields


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
    cuts_at_spaces: ClassVar[bool] = False
    reads_any_bytes: ClassVar[bool] = True
    unknown: None = None

    def __init__(self, *, eos: bool = False) -> None:
        self.eos = 10 if eos else None

    @classmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = False, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """The same for every text: nothing is read, and nothing can be left out."""
        if min_count > 1 or vocabulary_size is not None:
            raise ValueError("vocabulary_size and min_count: level byte always has its 256 symbols: leave them out")
        return cls(eos=eos)

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> Ids:
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half a surrogate pair stands for no byte: write it as UTF-8 would
            raw = text.encode("utf-8", "surrogatepass")
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

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        check_fields(content, cls.level, {"eos": bool})
        return cls(eos=content["eos"])
