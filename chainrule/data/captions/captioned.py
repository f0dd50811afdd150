"""Captioned pictures in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.pairs.sentences import Sentences
from chainrule.data.vocabulary import Ids


@dataclass(frozen=True)
class CaptionedPictures:
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
    """Pictures in an order drawn anew for each epoch, with one of the captions of each, as a function of (seed, step).

    An epoch shows every picture once, but for those that do not fill a batch: with its first caption, its second, ...
    in turn from epoch to epoch, in an order of its own; half of the pictures are mirrored, drawn anew each time.

    Args:
        captioned: what is shown.
        batch_size: pictures of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.
        mirror: whether half of the pictures are.

    Raises:
        ValueError: there are fewer pictures than processes, or an argument is out of range.
    """

    def __init__(
        self,
        captioned: CaptionedPictures,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        *,
        mirror: bool = True,
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.captioned, self.seed, self._shard, self._mirror = captioned, seed, shard, mirror
        self.batch_size = min(batch_size, len(captioned) // shard[1] * shard[1])
        if self.batch_size < 1:
            raise ValueError(f"captioned: expected at least {shard[1]} pictures, got {len(captioned)}")
        self.steps_per_epoch = len(captioned) // self.batch_size
        self._epoch, self._order, self._turn = -1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._mirrored = np.zeros(0, dtype=bool)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            random = np.random.default_rng([self.seed, epoch])
            self._order = random.permutation(len(self.captioned))
            self._mirrored = random.random(len(self.captioned)) < (0.5 if self._mirror else 0.0)
            self._turn = np.random.default_rng(self.seed).integers(1 << 32, size=len(self.captioned)) + epoch
            self._epoch = epoch
        rank, world = self._shard
        pictures = self._order[place * self.batch_size : (place + 1) * self.batch_size][rank::world]
        captions = np.zeros(len(pictures), dtype=np.int64)
        for row, picture in enumerate(pictures.tolist()):
            own = self.captioned.captions_of(picture)
            captions[row] = own[int(self._turn[picture]) % len(own)]
        return self.captioned.batch(pictures, captions, self._mirrored[pictures])


def caption_evaluation(captioned: CaptionedPictures, batch_size: int = 64) -> Iterator[Batch]:
    """Every caption of every picture once, in order."""
    pictures = np.repeat(np.arange(len(captioned)), np.diff(captioned.ends, prepend=0))
    for first in range(0, len(pictures), batch_size):
        captions = np.arange(first, min(first + batch_size, len(pictures)))
        yield captioned.batch(pictures[captions], captions)
