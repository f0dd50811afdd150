"""Labelled texts in batches, sorted so that rows of a batch have similar lengths."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data.batches import Batch
from chainrule.data.labelled.encoded_texts import EncodedTexts, Numbers
from chainrule.data.shuffled import Shuffled, by_length, in_order

_BATCHES_IN_POOL = 32


class LabelledBatches:
    """Labels with the texts that they are conditioned on, as a pure function of (seed, step).

    Rows come in the order of `Shuffled`, sorted by length in pools of 32 batches.

    Args:
        texts: N of them.
        labels: (N,) their numbers.
        limit: longer texts are cut to this many elements.
        batch_size, seed, shard: see `Shuffled`.
    """

    def __init__(
        self,
        texts: EncodedTexts,
        labels: Numbers,
        batch_size: int,
        limit: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        self._texts, self._labels, self._limit = texts, labels, limit
        self._rows = Shuffled(
            len(texts), batch_size, seed, shard, name="texts", sort=by_length(texts.lengths), pool=_BATCHES_IN_POOL,
            within_pool=True,
        )  # fmt: skip
        self.steps_per_epoch = self._rows.steps_per_epoch

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        return _batch(self._texts, self._labels, self._rows.own(self._rows.at(step)), self._limit)


def labelled_evaluation(
    texts: EncodedTexts, labels: Numbers, batch_size: int, limit: int | None = None, rows: Numbers | None = None
) -> Iterator[Batch]:
    """Every row once, or those with the numbers in `rows`, in order."""
    return (_batch(texts, labels, chosen, limit) for chosen in in_order(len(texts), batch_size, rows))


def _batch(texts: EncodedTexts, labels: Numbers, rows: Numbers, limit: int | None) -> Batch:
    numbers = torch.from_numpy(np.asarray(labels[rows], dtype=np.int64))
    return Batch(numbers, context=texts.context(rows, limit), whole=True)
