"""Clips of sound in batches, sorted so that rows of a batch have similar lengths."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._batches import Batch, Batches, Shuffled, by_length, padded
from chainrule.data._vocabulary import Ids, Tokens

_BATCHES_IN_POOL = 64
Labels = npt.NDArray[np.int64]


def clip_batches(
    tokens: Tokens,
    batch_size: int,
    longest: int,
    labels: Labels | None = None,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    """Clips in the order of `Shuffled`, sorted by length in pools of 64 batches.

    A clip longer than `longest` is cut into pieces, each a separate sequence.

    Args:
        tokens: levels, a line a clip.
        longest: samples of a piece.
        labels: (clips,) integers, the context of the rows; `None` without labels.
        batch_size, seed, shard: see `Shuffled`.
    """
    pieces = _Pieces(tokens, longest, labels)
    lengths = pieces.lengths
    order = Shuffled(
        len(lengths), batch_size, seed, shard, name="clips", sort=by_length(lengths), pool=_BATCHES_IN_POOL
    )
    return Batches(order, lambda _, rows: pieces.batch(order.own(rows), int(lengths[rows].max())))


def clip_evaluation(tokens: Tokens, batch_size: int, longest: int, labels: Labels | None = None) -> Iterator[Batch]:
    """Every piece of every clip once, `batch_size` of similar length in a batch.

    The order of batches is random with a fixed seed, so that the first ones are a fair sample of all lengths.
    """
    pieces = _Pieces(tokens, longest, labels)
    order = np.argsort(pieces.lengths, kind="stable")
    for start in np.random.default_rng(0).permutation(np.arange(0, len(order), batch_size)).tolist():
        chosen = order[start : start + batch_size]
        yield pieces.batch(chosen, int(pieces.lengths[chosen].max()))


class _Pieces:
    """Clips cut into pieces: of each the clip, where it starts and its length."""

    def __init__(self, tokens: Tokens, longest: int, labels: Labels | None):
        if longest < 1:
            raise ValueError(f"chunk_length: expected at least 1, got {longest}")
        if not tokens.line_count:
            raise ValueError("clips: expected at least one, got none")
        starts, stops = tokens.line_bounds(np.arange(tokens.line_count))
        counts = -(-(stops - starts) // longest)
        self._tokens, self._labels, self._clips = tokens, labels, np.repeat(np.arange(len(counts)), counts)
        piece = np.arange(len(self._clips)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._starts = starts[self._clips] + piece * longest
        self.lengths = np.minimum(longest, stops[self._clips] - self._starts)

    def batch(self, pieces: Ids, width: int) -> Batch:
        """Some of the pieces, padded with 0 to a width."""
        starts, lengths = self._starts[pieces], self.lengths[pieces]
        x = padded(self._tokens.rows(starts, starts + lengths), width)
        labels = None if self._labels is None else torch.from_numpy(self._labels[self._clips[pieces]])
        return Batch(x, lengths=torch.from_numpy(lengths), context=labels)
