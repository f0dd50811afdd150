"""Pictures in batches, with their labels as context."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.images.reduction import Reduction
from chainrule.data.images.source import Pixels


class ImageBatches:
    """Pictures in an order drawn anew for each epoch, as a pure function of (seed, step).

    An epoch reads every picture once, but for those that do not fill a batch; fewer pictures than a batch are a batch.
    There is no state to save: to resume is to ask for the next step.

    Args:
        images: (N, C, H, W).
        labels: (N,), or `None`.
        batch_size: pictures of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.
        drawn: where pixels are binarised anew in each epoch, how; the draws are those of seed and step too.

    >>> batches = ImageBatches(np.zeros((5, 1, 4, 4), np.uint8), np.arange(5), batch_size=2)
    >>> batch = batches.at(0)
    >>> batches.steps_per_epoch, batch.x.shape, batch.context.shape
    (2, torch.Size([2, 1, 4, 4]), torch.Size([2]))
    """

    def __init__(
        self,
        images: Pixels,
        labels: npt.NDArray[np.int64] | None,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        drawn: Reduction | None = None,
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.images, self.labels, self.seed = images, labels, seed
        self._shard, self._drawn = shard, drawn
        self.batch_size = min(batch_size, len(images) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"images: expected at least {shard[1]}, one for each process, got {len(images)}")
        self.steps_per_epoch = len(images) // self.batch_size
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, 0, epoch]).permutation(len(self.images))
            self._epoch = epoch
        rank, world = self._shard
        chosen = self._order[place * self.batch_size : (place + 1) * self.batch_size]
        pixels = np.asarray(self.images[chosen])
        if self._drawn is not None:  # for the whole batch, so that every number of processes draws the same
            pixels = self._drawn.apply(pixels, np.random.default_rng([self.seed, 1, step]))
        labels = None if self.labels is None else self.labels[chosen][rank::world]
        return image_batch(pixels[rank::world], labels)


def image_evaluation(images: Pixels, labels: npt.NDArray[np.int64] | None, batch_size: int) -> Iterator[Batch]:
    """Every picture once, in order."""
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        yield image_batch(images[part], None if labels is None else labels[part])


def image_batch(images: Pixels, labels: npt.NDArray[np.int64] | None) -> Batch:
    """Pictures (B, C, H, W) as whole rows of integers, labels (B,) as their context."""
    x = torch.from_numpy(np.array(images)).long()
    return Batch(x, context=None if labels is None else torch.from_numpy(np.array(labels)), whole=True)
