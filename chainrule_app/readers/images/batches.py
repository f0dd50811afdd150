"""Images in batches, labels as their context; or labels in batches, images as their context."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chainrule.data import Batch, Batches, Shuffled
from chainrule_app.readers.images.source import Pixels, Reduction
from chainrule_app.readers.row_order import Rows, in_order


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images, drawn for each image."""

    shift: float = 0.0  # pixels up, down, left or right at most
    rotate: float = 0.0  # degrees in either direction at most
    scale: float = 0.0  # largest growth or shrinking of an image: 0.1 is a factor from 1 / 1.1 to 1.1
    flip: bool = False  # whether half of the images are mirrored, left for right

    def __post_init__(self) -> None:
        for name, largest in {"shift": 1e4, "rotate": 180, "scale": 9}.items():
            value = getattr(self, name)
            if not 0 <= value <= largest:
                raise ValueError(f"{name}: expected a number from 0 to {largest:g}, got {value}")

    def __call__(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Change images (B, C, H, W), alike for equal `random`: shifts alone by whole pixels, others interpolated."""
        if self.flip:
            mirrored = torch.from_numpy(random.random(len(images)) < 0.5).view(-1, 1, 1, 1)
            images = torch.where(mirrored, images.flip(3), images)
        if not (self.rotate or self.scale):
            most = int(self.shift)
            return _shifted(images, random.integers(-most, most + 1, (len(images), 2)), most) if most else images
        return self._warped(images, random)

    def _warped(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Turn, scale and shift images, read bilinearly."""
        batch = len(images)
        angle = math.radians(self.rotate) * random.uniform(-1, 1, batch)
        factor = (1 + self.scale) ** random.uniform(-1, 1, batch)
        moves = np.zeros((batch, 2, 3))  # places of the changed image to places of the image, pixels from the middle
        moves[:, :, 2] = self.shift * random.uniform(-1, 1, (batch, 2))
        cosine, sine = np.cos(angle) / factor, np.sin(angle) / factor
        moves[:, 0, 0], moves[:, 0, 1], moves[:, 1, 0], moves[:, 1, 1] = cosine, -sine, sine, cosine
        half = np.array([images.shape[3] / 2, images.shape[2] / 2, 1.0])
        maps = torch.from_numpy(moves * half / half[:2, None]).float()  # in halves of the sides
        grid = nn.functional.affine_grid(maps, list(images.shape), align_corners=False)
        return nn.functional.grid_sample(images.float(), grid, align_corners=False)


def _shifted(images: Tensor, by: np.ndarray, most: int) -> Tensor:
    """Return each image moved by its (down, right) pixels."""
    batch, channels, height, width = images.shape
    padded = nn.functional.pad(images, (most, most, most, most))
    rows = torch.arange(height) + most - torch.from_numpy(by[:, :1])  # (B, H)
    columns = torch.arange(width) + most - torch.from_numpy(by[:, 1:])
    index = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1)
    return padded[*index, rows.view(batch, 1, -1, 1), columns.view(batch, 1, 1, -1)]


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
