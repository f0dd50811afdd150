"""Pairs of sentences in batches."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.pairs.sentences import PairedSentences
from chainrule.data.vocabulary import Ids

DECAYS = ("none", "linear", "inverse-sigmoid")
_BATCHES_IN_POOL = 64


class PairBatches:
    r"""Pairs in an order drawn anew for each epoch, those of like length side by side, as a function of (seed, step).

    An epoch shuffles the pairs, takes them by pools of 64 batches, sorts each pool by target and source length, cuts it
    into batches and shuffles those. It reads every pair once, but for those that do not fill a batch. There is no state
    to save: to resume is to ask for the next step.

    Args:
        pairs: as numbers.
        batch_size: pairs of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.
        decay: scheduled sampling, see `own_words_share`; "none" leaves it out.
        decay_steps: how many steps it takes.

    Raises:
        ValueError: there are no pairs for each process, or an argument is out of range.

    >>> from chainrule.data.pairs import Sentences
    >>> sentences = Sentences.of([np.array([2, 1]), np.array([3, 3, 1])])
    >>> batch = PairBatches(PairedSentences(sentences, sentences), batch_size=2).at(0)
    >>> batch.x.shape, sorted(batch.context)
    (torch.Size([2, 3]), ['lengths', 'tokens'])
    """

    def __init__(
        self,
        pairs: PairedSentences,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        *,
        decay: str = "none",
        decay_steps: int = 1,
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        own_words_share(decay, 0, decay_steps)
        self.pairs, self.seed, self._shard = pairs, seed, shard
        self._decay, self._decay_steps = decay, decay_steps
        self.batch_size = min(batch_size, len(pairs) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"pairs: expected at least {shard[1]}, one for each process, got {len(pairs)}")
        self.steps_per_epoch = len(pairs) // self.batch_size
        self._epoch, self._order = -1, np.zeros((0, 0), dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        rank, world = self._shard
        batch = self.pairs.batch(self._order[place, rank::world])
        if self._decay == "none":
            return batch
        share = torch.full((len(batch.x),), own_words_share(self._decay, step, self._decay_steps))
        return replace(batch, context={**batch.context, "own_words": share})

    def _shuffled(self, epoch: int) -> Ids:
        """The pairs of each batch of an epoch, (steps, B)."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.pairs))[: self.steps_per_epoch * self.batch_size]
        pool = _BATCHES_IN_POOL * self.batch_size
        parts = [order[first : first + pool] for first in range(0, len(order), pool)]
        target, source = self.pairs.target, self.pairs.source
        ordered = [part[np.lexsort((source.lengths(part), target.lengths(part)))] for part in parts]
        return rng.permutation(np.concatenate(ordered).reshape(-1, self.batch_size))


def own_words_share(decay: str, step: int, steps: int) -> float:
    r"""The probability that a word read is the model's own, not the one given, at a step (Bengio et al. 2015).

    .. math:: \tfrac12 \min(1, i / n) \qquad\text{or}\qquad
        \min\Bigl(\tfrac12, 1 - \frac{k}{k - 1 + e^{i/k}}\Bigr), \quad k = n / 10

    linear or as an inverse sigmoid. It rises from 0, and never past one half: at the end the model still reads words of
    the data.

    Args:
        decay: "none", "linear" or "inverse-sigmoid".
        step: i, from 0.
        steps: n.

    Raises:
        ValueError: there is no such decay, or n is no number of steps.

    >>> [own_words_share("linear", step, 100) for step in (0, 50, 1000)]
    [0.0, 0.25, 0.5]
    """
    if decay not in DECAYS:
        raise ValueError(f"decay: expected one of {', '.join(DECAYS)}, got {decay!r}")
    if steps < 1:
        raise ValueError(f"decay_steps: expected an integer >= 1, got {steps}")
    if decay == "none":
        return 0.0
    if decay == "linear":
        return min(1.0, step / steps) / 2
    scale = max(steps / 10, 1.0)
    return min(0.5, 1 - scale / (scale + math.exp(min(step / scale, 700.0)) - 1))


def pair_evaluation(pairs: PairedSentences, batch_size: int = 128) -> Iterator[Batch]:
    """Every pair once, in order."""
    for first in range(0, len(pairs), batch_size):
        yield pairs.batch(np.arange(first, min(first + batch_size, len(pairs))))
