"""Images in batches, labels as their context; or labels in batches, images as their context."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, Shuffled, in_order
from chainrule.data.images.augmentation import Augmentation
from chainrule.data.images.reduction import Reduction
from chainrule.data.images.source import Pixels


class ImageBatches:
    """Images in the order of `Shuffled`, as a pure function of (seed, step).

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
    """Every image once, in order."""
    for rows in in_order(len(images), batch_size):
        yield image_batch(images[rows], None if labels is None else labels[rows])


def image_batch(images: Pixels, labels: npt.NDArray[np.int64] | None) -> Batch:
    """Images (B, C, H, W) as whole rows of integers, labels (B,) as their context."""
    x = torch.from_numpy(np.array(images)).long()
    return Batch(x, context=None if labels is None else torch.from_numpy(np.array(labels)), whole=True)


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
