"""Labels of texts, and batches of both."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isnan, nan
from typing import Any, Self

import numpy as np
import torch

from chainrule.data._atomic import Record, read_record
from chainrule.data._batches import Batch, Batches, Shuffled, by_length, in_order
from chainrule.data._labelled.encoded_texts import EncodedTexts, Numbers


class Labels(Record):
    """Names of labels and their numbers, 0..C-1, in the order of the names (numbers by their value).

    Args:
        counts: how often each was seen in training, at least once.

    >>> labels = Labels.fit(["good", "bad", "good"])
    >>> labels.names, labels.encode("good"), labels.prior
    (('bad', 'good'), 1, (0.3333333333333333, 0.6666666666666666))
    """

    def __init__(self, counts: Mapping[str, int]):
        if len(counts) < 2 or min(counts.values()) < 1:
            raise ValueError(
                f"counts: expected two labels or more, each seen, got {len(counts)} of {dict(counts)!r:.80}"
            )
        self.counts = {name: counts[name] for name in sorted(counts, key=_order)}
        self.names = tuple(self.counts)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def fit(cls, labels: Iterable[str]) -> Self:
        """Labels of a training set."""
        return cls(Counter(labels))

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, name: str) -> int:
        """Return the number of a label."""
        if name not in self._numbers:
            raise ValueError(f"the label {name!r:.60} was not seen in training, where there were {self.listed()}")
        return self._numbers[name]

    def listed(self, most: int = 8) -> str:
        """Return the names in a line, the first few of many."""
        listing = ", ".join(name if len(name) <= 24 else name[:23] + "…" for name in self.names[:most])
        return listing if len(self) <= most else f"{listing}, ... ({len(self)})"

    @property
    def prior(self) -> tuple[float, ...]:
        """The share of each in training."""
        total = sum(self.counts.values())
        return tuple(count / total for count in self.counts.values())

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "counts": self.counts}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build what `to_json` described; raise ValueError for anything else."""
        return read_record(cls, {"counts": dict[str, int]}, content)


def _order(name: str) -> tuple[bool, float, str]:
    try:
        value = float(name)
    except ValueError:
        value = nan
    return (True, 0.0, name) if isnan(value) else (False, value, name)


_BATCHES_IN_POOL = 32


def labelled_batches(
    texts: EncodedTexts,
    labels: Numbers,
    batch_size: int,
    limit: int | None = None,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    """Labels given texts, in the order of `Shuffled`, sorted by length in pools of 32 batches.

    Args:
        texts: N of them.
        labels: (N,) their numbers.
        limit: longer texts are cut to this many elements.
        batch_size, seed, shard: see `Shuffled`.
    """
    sort = by_length(texts.lengths)
    order = Shuffled(
        len(texts), batch_size, seed, shard, name="texts", sort=sort, pool=_BATCHES_IN_POOL, within_pool=True
    )
    return Batches(order, lambda _, rows: _batch(texts, labels, order.own(rows), limit))


def labelled_evaluation(
    texts: EncodedTexts, labels: Numbers, batch_size: int, limit: int | None = None, rows: Numbers | None = None
) -> Iterator[Batch]:
    """Every row once, or those with the numbers in `rows`, in order."""
    lengths = texts.lengths if limit is None else np.minimum(texts.lengths, limit)
    return (_batch(texts, labels, chosen, limit) for chosen in in_order(len(texts), batch_size, rows, lengths))


def _batch(texts: EncodedTexts, labels: Numbers, rows: Numbers, limit: int | None) -> Batch:
    numbers = torch.from_numpy(np.asarray(labels[rows], dtype=np.int64))
    return Batch(numbers, context=texts.context(rows, limit), whole=True)
