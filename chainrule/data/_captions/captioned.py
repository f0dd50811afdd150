"""Captioned images in batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._batches import Batch, Batches, Rows, Shuffled, in_order
from chainrule.data._ragged import Ragged
from chainrule.data._vocabulary import Ids


@dataclass(frozen=True)
class CaptionedImages:
    """N images, each with one caption or several.

    Attributes:
        images: (N, 3, S, S), values from 0 to 255.
        captions: those of the first image, then those of the second, ..., each with its `<eos>`.
        offsets: (N + 1,) where the captions of each image begin, and their number.
    """

    images: npt.NDArray[np.uint8]
    captions: Ragged
    offsets: Ids

    def __len__(self) -> int:
        return len(self.images)

    def captions_of(self, image: int) -> range:
        """The places of an image's captions."""
        return range(*self.offsets[image : image + 2].tolist())

    def batch(self, images: Ids, captions: Ids, mirrored: npt.NDArray[np.bool_] | None = None) -> Batch:
        """The given captions as x, each given its image; some of the images mirrored."""
        x, lengths = self.captions.padded(captions)
        pixels = np.array(self.images[images])
        if mirrored is not None:
            pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return Batch(x, lengths, context=torch.from_numpy(pixels))


def caption_batches(
    captioned: CaptionedImages,
    batch_size: int,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    *,
    mirror: bool = True,
) -> Batches:
    """Images in the order of `Shuffled`, with one of the captions of each.

    An image comes with its first caption, its second, ... in turn from epoch to epoch, in an order of its own. Half of
    the images are mirrored, others in each epoch.

    Args:
        captioned: images and captions.
        batch_size, seed, shard: see `Shuffled`.
        mirror: whether half of the images are.
    """
    order = Shuffled(len(captioned), batch_size, seed, shard, name="captioned")
    turn = np.random.default_rng(seed).integers(1 << 32, size=len(captioned))
    counts = np.diff(captioned.offsets)

    @lru_cache(maxsize=1)
    def mirrored(epoch: int) -> npt.NDArray[np.bool_]:
        random = np.random.default_rng([seed, epoch])
        random.permutation(len(captioned))  # the draws that follow those of the order
        return np.asarray(random.random(len(captioned)) < (0.5 if mirror else 0.0))

    def make(step: int, rows: Rows) -> Batch:
        epoch, images = step // order.steps_per_epoch, order.own(rows)
        captions = captioned.offsets[images] + (turn[images] + epoch) % counts[images]
        return captioned.batch(images, captions, mirrored(epoch)[images])

    return Batches(order, make)


def caption_evaluation(captioned: CaptionedImages, batch_size: int = 64) -> Iterator[Batch]:
    """Every caption of every image once, in order."""
    images = np.repeat(np.arange(len(captioned)), np.diff(captioned.offsets))
    return (captioned.batch(images[captions], captions) for captions in in_order(len(images), batch_size))
