"""Captioned pictures in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, Shuffled, in_order
from chainrule.data.pairs.sentences import Sentences
from chainrule.data.vocabulary import Ids


@dataclass(frozen=True)
class CaptionedImages:
    """N pictures, each with one caption or several.

    Attributes:
        pictures: (N, 3, S, S), values from 0 to 255.
        captions: those of the first picture, then those of the second, ..., each with its `<eos>`.
        ends: (N,) where the captions of each picture end.
    """

    pictures: npt.NDArray[np.uint8]
    captions: Sentences
    ends: Ids

    def __len__(self) -> int:
        return len(self.pictures)

    def captions_of(self, picture: int) -> range:
        """The places of a picture's captions."""
        return range(int(self.ends[picture - 1]) if picture else 0, int(self.ends[picture]))

    def batch(self, pictures: Ids, captions: Ids, mirrored: npt.NDArray[np.bool_] | None = None) -> Batch:
        """The given captions as x, each given its picture; some of the pictures mirrored."""
        x, lengths = self.captions.padded(captions)
        pixels = np.array(self.pictures[pictures])
        if mirrored is not None:
            pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return Batch(x, lengths, context=torch.from_numpy(pixels))


class CaptionBatches:
    """Pictures in the order of `Shuffled`, with one of the captions of each, as a function of (seed, step).

    A picture comes with its first caption, its second, ... in turn from epoch to epoch, in an order of its own. Half of
    the pictures are mirrored, others in each epoch.

    Args:
        captioned: pictures and captions.
        batch_size, seed, shard: see `Shuffled`.
        mirror: whether half of the pictures are.

    Raises:
        ValueError: there are fewer pictures than processes, or an argument is out of range.
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
        pictures = self._rows.own(self._rows.at(step))
        captions = np.zeros(len(pictures), dtype=np.int64)
        for row, picture in enumerate(pictures.tolist()):
            own = self._captioned.captions_of(picture)
            captions[row] = own[int(self._turn[picture] + epoch) % len(own)]
        return self._captioned.batch(pictures, captions, self._mirrored[pictures])


def caption_evaluation(captioned: CaptionedImages, batch_size: int = 64) -> Iterator[Batch]:
    """Every caption of every picture once, in order."""
    pictures = np.repeat(np.arange(len(captioned)), np.diff(captioned.ends, prepend=0))
    return (captioned.batch(pictures[captions], captions) for captions in in_order(len(pictures), batch_size))
