"""Labelled texts in batches, those of like length side by side."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.labelled.encoded_texts import EncodedTexts, Numbers

_BATCHES_IN_POOL = 32


class LabelledBatches:
    """Labels with the texts that they are conditioned on, as a pure function of (seed, step).

    An epoch shuffles the rows, takes them by pools of 32 batches, sorts each pool by length, cuts it into batches and
    shuffles those. It reads every row once, but for the last (number of rows mod B), others in each epoch; fewer rows
    than a batch are a batch. There is no state to save: to resume is to ask for the next step.

    Args:
        texts: N of them.
        labels: (N,) their numbers.
        batch_size: rows of a batch, over all processes.
        limit: longer texts are cut to so many elements.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.
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
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.texts, self.labels, self.limit, self.seed, self._shard = texts, labels, limit, seed, shard
        self.batch_size = min(batch_size, len(texts) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"texts: expected at least {shard[1]}, one for each process, got {len(texts)}")
        self.steps_per_epoch = len(texts) // self.batch_size
        self._epoch = -1
        self._batches: Numbers = np.zeros((0, 0), dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._arranged(epoch)
        rank, world = self._shard
        return _batch(self.texts, self.labels, self._batches[place][rank::world], self.limit)

    def _arranged(self, epoch: int) -> Numbers:
        """The rows of each batch of an epoch, (batches, B)."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.texts))[: self.steps_per_epoch * self.batch_size]
        lengths = self.texts.lengths
        pools = []
        for start in range(0, len(order), _BATCHES_IN_POOL * self.batch_size):
            pool = order[start : start + _BATCHES_IN_POOL * self.batch_size]
            pool = pool[np.argsort(lengths[pool], kind="stable")].reshape(-1, self.batch_size)
            pools.append(random.permutation(pool))
        return np.concatenate(pools)


def labelled_evaluation(
    texts: EncodedTexts, labels: Numbers, batch_size: int, limit: int | None = None, rows: Numbers | None = None
) -> Iterator[Batch]:
    """Every row once, or those with the numbers in `rows`, in order."""
    rows = np.arange(len(texts)) if rows is None else rows
    for start in range(0, len(rows), batch_size):
        yield _batch(texts, labels, rows[start : start + batch_size], limit)


def _batch(texts: EncodedTexts, labels: Numbers, rows: Numbers, limit: int | None) -> Batch:
    numbers = torch.from_numpy(np.asarray(labels[rows], dtype=np.int64))
    return Batch(numbers, context=texts.context(rows, limit), whole=True)
