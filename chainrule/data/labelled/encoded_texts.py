"""Texts as numbers, and some of them as the condition of a model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.data.labelled.text_symbols import TextSymbols
from chainrule.data.store import Store, StoreWriter

Numbers = npt.NDArray[np.integer]
NOTHING = -1  # fills up a bag, as `chainrule.models.SequenceClassifier` reads it


@dataclass(frozen=True)
class EncodedTexts:
    """N texts, one after the other.

    Attributes:
        tokens: the elements of all texts: numbers of bags, or symbols where there are no bags.
        offsets: (N + 1,) where each text begins, and the end.
        bags: the symbols of all bags; empty where an element is one symbol.
        bag_offsets: where each bag begins, and the end; empty where an element is one symbol.

    >>> texts = EncodedTexts.of(["ab", "", "b"], TextSymbols("char", "ab"))
    >>> texts.context(np.array([0, 1]))
    {'inputs': tensor([[ 1,  2],
            [-1, -1]]), 'lengths': tensor([2, 0])}
    """

    tokens: Numbers
    offsets: Numbers
    bags: Numbers
    bag_offsets: Numbers

    @classmethod
    def of(cls, texts: Iterable[str], symbols: TextSymbols) -> Self:
        """Encode texts; each different word is looked up once."""
        tokens: list[int] = []
        bags: list[int] = []
        offsets, bag_offsets = [0], [0]
        seen: dict[str, int] = {}
        for text in texts:
            for token in symbols.tokens(text):
                if symbols.parts is None:
                    tokens.append(symbols.encode(token)[0])
                    continue
                number = seen.setdefault(token, len(seen))
                if number == len(bag_offsets) - 1:
                    bags.extend(symbols.encode(token))
                    bag_offsets.append(len(bags))
                tokens.append(number)
            offsets.append(len(tokens))
        return cls(
            np.array(tokens, dtype=np.int32),
            np.array(offsets, dtype=np.int64),
            np.array(bags, dtype=np.int32),
            np.array(bag_offsets if symbols.parts is not None else [], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Numbers:
        """(N,) elements of each text."""
        return np.diff(self.offsets)

    def context(self, rows: Numbers, limit: int | None = None) -> dict[str, Tensor]:
        """Some of the texts: `inputs` (B, T) symbols or (B, T, K) bags, and `lengths` (B,).

        Args:
            rows: (B,) numbers of texts.
            limit: longer texts are cut to this many elements.
        """
        starts, lengths = self.offsets[rows], self.offsets[np.asarray(rows) + 1] - self.offsets[rows]
        if limit is not None:
            lengths = np.minimum(lengths, limit)
        padded = _ragged(self.tokens, starts, lengths)
        if len(self.bag_offsets):
            real = padded[padded != NOTHING]
            kinds, place = np.unique(real, return_inverse=True)
            begin = self.bag_offsets[kinds]
            table = _ragged(self.bags, begin, self.bag_offsets[kinds + 1] - begin)
            inputs = np.full((*padded.shape, max(table.shape[1], 1)), NOTHING, dtype=np.int64)
            inputs[padded != NOTHING] = table[place] if len(real) else NOTHING
            padded = inputs
        return {"inputs": torch.from_numpy(padded), "lengths": torch.from_numpy(lengths.astype(np.int64))}

    def save(self, writer: StoreWriter, part: str) -> None:
        """Write the arrays as PART.NAME."""
        for name in ("tokens", "offsets", "bags", "bag_offsets"):
            writer.array(f"{part}.{name}", getattr(self, name))

    @classmethod
    def load(cls, store: Store, part: str, symbols: TextSymbols) -> Self:
        """Open what `save` wrote, read from the disk on demand.

        Raises:
            ValueError: a file is missing, or damaged.
        """
        bags, bag_offsets = store.array(f"{part}.bags", "i4", below=len(symbols)), np.zeros(0, np.int64)
        if symbols.parts is not None:
            bag_offsets = store.offsets(f"{part}.bag_offsets", len(bags))
        kinds = len(symbols) if symbols.parts is None else len(bag_offsets) - 1
        tokens = store.array(f"{part}.tokens", "i4", below=kinds)
        return cls(tokens, store.offsets(f"{part}.offsets", len(tokens)), bags, bag_offsets)


def _ragged(values: Numbers, starts: Numbers, lengths: Numbers) -> npt.NDArray[np.int64]:
    """Rows of unequal length in one array, padded with `NOTHING`."""
    width = int(lengths.max(initial=0))
    places = np.arange(width)
    real = places < lengths[:, None]
    rows = np.full(real.shape, NOTHING, dtype=np.int64)
    rows[real] = values[(starts[:, None] + places)[real]]
    return rows
