"""Pairs of sentences as numbers, in batches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from chainrule.data._batches import Batch, Batches, Rows, Shuffled, in_order
from chainrule.data._ragged import Ragged
from chainrule.data._vocabulary import Ids

DECAYS = ("none", "linear", "inverse-sigmoid")
_BATCHES_IN_POOL = 64


@dataclass(frozen=True)
class PairedSentences:
    """As many sentences of a source and of a target, each with its `<eos>`."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, chosen: Ids) -> Batch:
        """Return the targets as x, conditioned on their sources."""
        x, lengths = self.target.padded(chosen)
        return Batch(x, lengths, context=source_context(self.source, chosen))


def source_context(source: Ragged, chosen: Ids) -> dict[str, Tensor]:
    """Source sentences as the context of `chainrule.models.Seq2Seq`."""
    tokens, lengths = source.padded(chosen)
    return {"tokens": tokens, "lengths": lengths}


def pair_batches(
    pairs: PairedSentences,
    batch_size: int,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    *,
    decay: str = "none",
    decay_steps: int = 1,
) -> Batches:
    r"""Pairs in the order of `Shuffled`, sorted by target and source length in pools of 64 batches.

    Args:
        pairs: as numbers.
        batch_size, seed, shard: see `Shuffled`.
        decay: scheduled sampling, see `scheduled_sampling_rate`; "none" leaves it out.
        decay_steps: how many steps it takes.

    >>> from chainrule.data._ragged import Ragged
    >>> sentences = Ragged.of([[2, 1], [3, 3, 1]])
    >>> batch = pair_batches(PairedSentences(sentences, sentences), batch_size=2).at(0)
    >>> batch.x.shape, sorted(batch.context)
    (torch.Size([2, 3]), ['lengths', 'tokens'])
    """
    scheduled_sampling_rate(decay, 0, decay_steps)
    source, target = pairs.source.lengths, pairs.target.lengths

    def sort(rows: Rows) -> Rows:
        return np.lexsort((source[rows], target[rows]))

    order = Shuffled(len(pairs), batch_size, seed, shard, name="pairs", sort=sort, pool=_BATCHES_IN_POOL)

    def make(step: int, rows: Rows) -> Batch:
        batch = pairs.batch(order.own(rows))
        if decay == "none":
            return batch
        share = torch.full((len(batch.x),), scheduled_sampling_rate(decay, step, decay_steps))
        return replace(batch, context={**batch.context, "scheduled_sampling_rate": share})

    return Batches(order, make)


def scheduled_sampling_rate(decay: str, step: int, steps: int) -> float:
    r"""Return the probability that a word read is the model's own, not the one given, at a step (Bengio et al. 2015).

    .. math:: \tfrac{1}{2} \min(1, i / n) \qquad\text{or}\qquad
        \min\Bigl(\tfrac{1}{2}, 1 - \frac{k}{k - 1 + e^{i/k}}\Bigr), \quad k = n / 10

    linear or as an inverse sigmoid. It rises from 0, and never past one half: at the end the model still reads words of
    the data.

    Args:
        decay: "none", "linear" or "inverse-sigmoid".
        step: i, from 0.
        steps: n.

    >>> [scheduled_sampling_rate("linear", step, 100) for step in (0, 50, 1000)]
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
    lengths = np.maximum(pairs.source.lengths, pairs.target.lengths)
    return map(pairs.batch, in_order(len(pairs), batch_size, lengths=lengths))
