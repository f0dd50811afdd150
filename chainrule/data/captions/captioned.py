"""Captioned images in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, Shuffled, in_order
from chainrule.data.ragged import Ragged
from chainrule.data.vocabulary import Ids


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


class CaptionBatches:
    """Images in the order of `Shuffled`, with one of the captions of each, as a function of (seed, step).

    An image comes with its first caption, its second, ... in turn from epoch to epoch, in an order of its own. Half of
    the images are mirrored, others in each epoch.

    Args:
        captioned: images and captions.
        batch_size, seed, shard: see `Shuffled`.
        mirror: whether half of the images are.

    Raises:
        ValueError: there are fewer images than processes, or an argument is out of range.
    """

    def __init__(
        self,
        captioned: CaptionedImages,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        *,
        mirror: bool = True,
    ):
        self._captioned, self._seed, self._mirror = captioned, seed, mirror
        self._rows = Shuffled(len(captioned), batch_size, seed, shard, name="captioned")
        self.steps_per_epoch = self._rows.steps_per_epoch
        self._turn = np.random.default_rng(seed).integers(1 << 32, size=len(captioned))
        self._epoch, self._mirrored = -1, np.zeros(0, dtype=bool)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch = step // self.steps_per_epoch
        if epoch != self._epoch:
            random = np.random.default_rng([self._seed, epoch])
            random.permutation(len(self._captioned))  # the draws that follow those of the order
            self._mirrored = random.random(len(self._captioned)) < (0.5 if self._mirror else 0.0)
            self._epoch = epoch
        images = self._rows.own(self._rows.at(step))
        captions = np.zeros(len(images), dtype=np.int64)
        for row, image in enumerate(images.tolist()):
            own = self._captioned.captions_of(image)
            captions[row] = own[int(self._turn[image] + epoch) % len(own)]
        return self._captioned.batch(images, captions, self._mirrored[images])


def caption_evaluation(captioned: CaptionedImages, batch_size: int = 64) -> Iterator[Batch]:
    """Every caption of every image once, in order."""
    images = np.repeat(np.arange(len(captioned)), np.diff(captioned.offsets))
    return (captioned.batch(images[captions], captions) for captions in in_order(len(images), batch_size))
