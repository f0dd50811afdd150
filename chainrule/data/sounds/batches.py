"""Clips of sound in batches, those of like length side by side."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.tokens import Ids, Tokens

_BATCHES_IN_POOL = 64
Labels = npt.NDArray[np.int64]


class ClipBatches:
    """Clips in an order drawn anew for each epoch, as a pure function of (seed, step).

    A clip longer than `longest` is cut into pieces, each a sequence of its own. An epoch shuffles the pieces, sorts
    them by length in pools of 64 batches, cuts the pools into batches and shuffles those; it reads every piece once,
    but for those that do not fill a batch. Fewer pieces than a batch are a batch.

    Args:
        tokens: levels, a line a clip.
        batch_size: rows of a batch, over all processes.
        longest: samples of a piece.
        labels: (clips,) integers, the context of the rows; `None` where there are none.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.

    Raises:
        ValueError: a number is out of range, or there are fewer pieces than processes.
    """

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        longest: int,
        labels: Labels | None = None,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.tokens, self.labels, self.seed, self._shard = tokens, labels, seed, shard
        self.clips, self.starts, self.stops = _pieces(tokens, longest)
        self.batch_size = min(batch_size, len(self.clips) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"clips: expected at least {shard[1]}, one for each process, got {len(self.clips)}")
        self.steps_per_epoch = len(self.clips) // self.batch_size
        self._epoch, self._order = -1, np.zeros((0, 0), dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        pieces = self._order[place]
        width = int((self.stops - self.starts)[pieces].max())
        rank, world = self._shard
        return _batch(self, pieces[rank::world], width)

    def _shuffled(self, epoch: int) -> Ids:
        """The pieces of each batch of an epoch, (batches, B)."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.clips))[: self.steps_per_epoch * self.batch_size]
        pool = _BATCHES_IN_POOL * self.batch_size
        lengths = self.stops - self.starts
        pools = (order[start : start + pool] for start in range(0, len(order), pool))
        by_length = [chosen[np.argsort(lengths[chosen], kind="stable")] for chosen in pools]
        return random.permutation(np.concatenate(by_length).reshape(-1, self.batch_size))


def clip_evaluation(tokens: Tokens, batch_size: int, longest: int, labels: Labels | None = None) -> Iterator[Batch]:
    """Every piece of every clip once, `batch_size` of like length side by side.

    Batches come in an order that has nothing to do with length, and is always the same: the first ones are fair to all.
    """
    batches = ClipBatches(tokens, 1, longest, labels)
    lengths = batches.stops - batches.starts
    starts = np.arange(0, len(lengths), batch_size)
    order = np.argsort(lengths, kind="stable")
    for start in np.random.default_rng(0).permutation(starts).tolist():
        pieces = order[start : start + batch_size]
        yield _batch(batches, pieces, int(lengths[pieces].max()))


def _pieces(tokens: Tokens, longest: int) -> tuple[Ids, Ids, Ids]:
    """Of each piece the clip, where it starts and where it stops."""
    if longest < 1:
        raise ValueError(f"chunk_length: expected at least 1, got {longest}")
    if not tokens.line_count:
        raise ValueError("clips: expected at least one, got none")
    starts, stops = tokens.line_bounds(np.arange(tokens.line_count))
    counts = -(-(stops - starts) // longest)
    clips = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(clips)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = starts[clips] + place * longest
    return clips, begin, np.minimum(begin + longest, stops[clips])


def _batch(batches: ClipBatches, pieces: Ids, width: int) -> Batch:
    starts, stops = batches.starts[pieces], batches.stops[pieces]
    x = np.zeros((len(pieces), width), dtype=np.int64)
    for padded, row in zip(x, batches.tokens.rows(starts, stops), strict=True):
        padded[: len(row)] = row
    labels = None if batches.labels is None else torch.from_numpy(batches.labels[batches.clips[pieces]])
    return Batch(torch.from_numpy(x), lengths=torch.from_numpy(stops - starts), context=labels)
