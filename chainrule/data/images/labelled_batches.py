"""Labels of images in batches, the images as context."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch
from chainrule.data.images.augmentation import Augmentation
from chainrule.data.images.source import Pixels
from chainrule.data.shuffled import Shuffled, in_order


class LabelledImageBatches:
    """Labels (B,) given images (B, C, H, W), changed at random for each step, as a pure function of (seed, step).

    Args:
        images: (N, C, H, W).
        labels: (N,).
        batch_size: images of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes).
        augmentation: how images are changed; None leaves them.

    >>> batches = LabelledImageBatches(np.zeros((5, 1, 4, 4), np.uint8), np.arange(5), batch_size=2)
    >>> batch = batches.at(0)
    >>> batches.steps_per_epoch, batch.x.shape, batch.context.shape
    (2, torch.Size([2]), torch.Size([2, 1, 4, 4]))
    """

    def __init__(
        self,
        images: Pixels,
        labels: npt.NDArray[np.int64],
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        augmentation: Augmentation | None = None,
    ):
        self._order = Shuffled(len(images), batch_size, seed, shard)
        self.images, self.labels, self.seed, self.augmentation = images, labels, seed, augmentation
        self.steps_per_epoch = self._order.steps_per_epoch

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        rows = self._order.at(step)
        images = torch.from_numpy(np.array(self.images[rows]))
        if self.augmentation is not None:  # of the whole batch, so that every number of processes changes them alike
            images = self.augmentation(images, np.random.default_rng([self.seed, 2, step]))
        own = self._order.own(np.arange(len(rows)))
        return Batch(torch.from_numpy(np.array(self.labels[rows])[own]), context=images[own], whole=True)


def labelled_image_evaluation(
    images: Pixels,
    labels: npt.NDArray[np.int64],
    batch_size: int,
    rows: npt.NDArray[np.integer] | None = None,
) -> Iterator[Batch]:
    """Every image once, in order, or those of some rows."""
    for chosen in in_order(len(images), batch_size, rows):
        context = torch.from_numpy(np.array(images[chosen]))
        yield Batch(torch.from_numpy(np.array(labels[chosen])), context=context, whole=True)
