"""Pictures in batches, with their labels as context."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch
from chainrule.data.images.reduction import Reduction
from chainrule.data.images.source import Pixels
from chainrule.data.shuffled import Shuffled, in_order


class ImageBatches:
    """Pictures in the order of `Shuffled`, as a pure function of (seed, step).

    Args:
        images: (N, C, H, W).
        labels: (N,), or `None`.
        batch_size, seed, shard: see `Shuffled`.
        drawn: how pixels are binarised, where each epoch draws them; the draws depend on seed and step too.

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
        self._images, self._labels, self._seed, self._drawn = images, labels, seed, drawn
        self._rows = Shuffled(len(images), batch_size, seed, shard, name="images", stream=(0,))
        self.steps_per_epoch = self._rows.steps_per_epoch

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        rows = self._rows.at(step)
        own = self._rows.own(rows)
        if self._drawn is None:
            pixels = np.asarray(self._images[own])
        else:  # for the whole batch, so that every number of processes draws the same
            random = np.random.default_rng([self._seed, 1, step])
            pixels = self._rows.own(self._drawn.apply(np.asarray(self._images[rows]), random))
        return image_batch(pixels, None if self._labels is None else self._labels[own])


def image_evaluation(images: Pixels, labels: npt.NDArray[np.int64] | None, batch_size: int) -> Iterator[Batch]:
    """Every picture once, in order."""
    for rows in in_order(len(images), batch_size):
        yield image_batch(images[rows], None if labels is None else labels[rows])


def image_batch(images: Pixels, labels: npt.NDArray[np.int64] | None) -> Batch:
    """Pictures (B, C, H, W) as whole rows of integers, labels (B,) as their context."""
    x = torch.from_numpy(np.array(images)).long()
    return Batch(x, context=None if labels is None else torch.from_numpy(np.array(labels)), whole=True)
