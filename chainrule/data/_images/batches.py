"""Images in batches, labels as their context; or labels in batches, images as their context."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._batches import Batch, Batches, Rows, Shuffled, in_order
from chainrule.data._images.augmentation import Augmentation
from chainrule.data._images.reduction import Reduction
from chainrule.data._images.source import Pixels

Numbers = npt.NDArray[np.int64]


def image_batches(
    images: Pixels,  # (N, C, H, W)
    labels: Numbers | None,  # (N,), or `None`
    batch_size: int,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    drawn: Reduction | None = None,  # how pixels are binarised, where each epoch draws them
) -> Batches:
    """Images in the order of `Shuffled`."""
    order = Shuffled(len(images), batch_size, seed, shard, name="images", stream=(0,))

    def make(step: int, rows: Rows) -> Batch:
        own = order.own(rows)
        if drawn is None:
            pixels = np.asarray(images[own])
        else:  # for the whole batch, so that every number of processes draws the same
            pixels = order.own(drawn.apply(np.asarray(images[rows]), np.random.default_rng([seed, 1, step])))
        return image_batch(pixels, None if labels is None else labels[own])

    return Batches(order, make)


def image_evaluation(images: Pixels, labels: Numbers | None, batch_size: int) -> Iterator[Batch]:
    """Every image once, in order."""
    for rows in in_order(len(images), batch_size):
        yield image_batch(images[rows], None if labels is None else labels[rows])


def image_batch(images: Pixels, labels: Numbers | None) -> Batch:
    """Images (B, C, H, W) as whole rows of integers, labels (B,) as their context."""
    x = torch.from_numpy(np.array(images)).long()
    return Batch(x, context=None if labels is None else torch.from_numpy(np.array(labels)), whole=True)


def labelled_image_batches(
    images: Pixels,  # (N, C, H, W)
    labels: Numbers,  # (N,)
    batch_size: int,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    augmentation: Augmentation | None = None,  # how images are changed; None leaves them
) -> Batches:
    """Labels (B,) given images (B, C, H, W), changed at random for each step, in the order of `Shuffled`.

    >>> batches = labelled_image_batches(np.zeros((5, 1, 4, 4), np.uint8), np.arange(5), batch_size=2)
    >>> batch = batches.at(0)
    >>> batches.steps_per_epoch, batch.x.shape, batch.context.shape
    (2, torch.Size([2]), torch.Size([2, 1, 4, 4]))
    """
    order = Shuffled(len(images), batch_size, seed, shard)

    def make(step: int, rows: Rows) -> Batch:
        changed = torch.from_numpy(np.array(images[rows]))
        if augmentation is not None:  # of the whole batch, so that every number of processes changes them alike
            changed = augmentation(changed, np.random.default_rng([seed, 2, step]))
        own = order.own(np.arange(len(rows)))
        return Batch(torch.from_numpy(np.array(labels[rows])[own]), context=changed[own], whole=True)

    return Batches(order, make)


def labelled_image_evaluation(
    images: Pixels,
    labels: Numbers,
    batch_size: int,
    rows: npt.NDArray[np.integer] | None = None,
) -> Iterator[Batch]:
    """Yield every image once, in order, or only the chosen rows."""
    for chosen in in_order(len(images), batch_size, rows):
        context = torch.from_numpy(np.array(images[chosen]))
        yield Batch(torch.from_numpy(np.array(labels[chosen])), context=context, whole=True)
