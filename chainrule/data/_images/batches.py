"""Images in batches, labels as their context; or labels in batches, images as their context."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chainrule.data._batches import Batch, Batches, Rows, Shuffled, in_order
from chainrule.data._images.source import Pixels, Reduction


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images, drawn for each image."""

    shift: float = 0.0  # pixels up, down, left or right at most
    rotate: float = 0.0  # degrees in either direction at most
    scale: float = 0.0  # largest growth or shrinking of an image: 0.1 is a factor from 1 / 1.1 to 1.1
    flip: bool = False  # whether half of the images are mirrored, left for right
    random_operations: int = 0  # on each image, as RandAugment draws them; see `draw_operations`
    magnitude: float = 0.3  # of these operations, 0 to 1
    levels: int = 256  # V, values that a channel of a pixel may have

    def __post_init__(self) -> None:
        most = {"shift": 1e4, "rotate": 180, "scale": 9, "random_operations": 16, "magnitude": 1}
        for name, largest in most.items():
            value = getattr(self, name)
            if not 0 <= value <= largest:
                raise ValueError(f"{name}: expected a number from 0 to {largest:g}, got {value}")

    def __call__(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Change images (B, C, H, W); the same `random` draws the same changes. Beyond the border is the lowest value.

        Shifts alone are whole pixels, and values stay as they are; other moves are interpolated.
        """
        if self.flip:
            mirrored = torch.from_numpy(random.random(len(images)) < 0.5).view(-1, 1, 1, 1)
            images = torch.where(mirrored, images.flip(3), images)
        if not (self.rotate or self.scale or self.random_operations):
            most = int(self.shift)
            return _shifted(images, random.integers(-most, most + 1, (len(images), 2)), most) if most else images
        moves = self._moves(images, random)
        if not self.random_operations:
            return _warped(images, moves)
        drawn = draw_operations(len(images), self.random_operations, self.magnitude, random)
        return drawn.coloured(_warped(images, moves @ drawn.moves(*images.shape[2:])), self.levels, random)

    def _moves(self, images: Tensor, random: np.random.Generator) -> np.ndarray:
        """(B, 3, 3), places of the changed image to places of the image: column, row, 1, in pixels from the middle."""
        batch = len(images)
        angle = math.radians(self.rotate) * random.uniform(-1, 1, batch)
        factor = (1 + self.scale) ** random.uniform(-1, 1, batch)
        moves = np.tile(np.eye(3), (batch, 1, 1))
        moves[:, :2, 2] = self.shift * random.uniform(-1, 1, (batch, 2))
        cosine, sine = np.cos(angle) / factor, np.sin(angle) / factor
        moves[:, 0, 0], moves[:, 0, 1], moves[:, 1, 0], moves[:, 1, 1] = cosine, -sine, sine, cosine
        return moves


def _warped(images: Tensor, moves: np.ndarray) -> Tensor:
    """Read each image at the places that `moves` (B, 3, 3) give, bilinearly."""
    half = np.array([images.shape[3] / 2, images.shape[2] / 2, 1.0])
    maps = torch.from_numpy((moves * half / half[:, None])[:, :2]).float()  # in halves of the sides
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


# The largest amount of each operation: share of a side, radians, slope, factor less one, cut-out share of a side.
LARGEST = {
    "shift down": 0.3,
    "shift right": 0.3,
    "rotate": math.pi / 6,
    "shear rows": 0.3,
    "shear columns": 0.3,
    "brightness": 0.9,
    "contrast": 0.9,
    "cutout": 0.4,
    "nothing": 0.0,
}


@dataclass(frozen=True)
class RandomOperations:
    """Operations drawn for each image of a batch."""

    amounts: dict[str, np.ndarray]  # (B,) of each operation by its name; 0 where it was not drawn

    def moves(self, height: int, width: int) -> np.ndarray:
        """(B, 3, 3), as `Augmentation` has them: shifted, turned and sheared."""
        angle = self.amounts["rotate"]
        turned, sheared = (np.tile(np.eye(3), (len(angle), 1, 1)) for _ in range(2))
        turned[:, 0, 0] = turned[:, 1, 1] = np.cos(angle)
        turned[:, 1, 0] = np.sin(angle)
        turned[:, 0, 1] = -turned[:, 1, 0]
        turned[:, 0, 2] = self.amounts["shift right"] * width
        turned[:, 1, 2] = self.amounts["shift down"] * height
        sheared[:, 0, 1], sheared[:, 1, 0] = self.amounts["shear rows"], self.amounts["shear columns"]
        return turned @ sheared

    def coloured(self, images: Tensor, levels: int, random: np.random.Generator) -> Tensor:
        """Images (B, C, H, W) brightened, their contrast changed, and with a square cut out of them.

        Brightness multiplies values, contrast their distance from the image's mean; both are clamped to
        [0, levels - 1]. The square lies anywhere and has the lowest value.
        """
        brightness, contrast = (
            torch.from_numpy(1 + self.amounts[name]).to(images).view(-1, 1, 1, 1) for name in ("brightness", "contrast")
        )
        images = (images * brightness).clamp(0, levels - 1)
        images = images.mean((1, 2, 3), keepdim=True).lerp(images, contrast).clamp(0, levels - 1)
        batch, _, height, width = images.shape
        half = torch.from_numpy(np.abs(self.amounts["cutout"])).view(-1, 1) / 2
        middle = torch.from_numpy(random.uniform(0, 1, (2, batch, 1)))
        rows, columns = (
            ((torch.arange(side) + 0.5) / side - centre).abs() < half
            for side, centre in zip((height, width), middle, strict=True)
        )  # (B, H), (B, W)
        return images.masked_fill((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0)


def draw_operations(batch: int, operations: int, magnitude: float, random: np.random.Generator) -> RandomOperations:
    """Draw operations for each image, all equally likely, as RandAugment does (Cubuk et al. 2020)."""
    chosen = random.integers(len(LARGEST), size=(batch, operations))
    signs = random.choice((-magnitude, magnitude), size=(batch, operations))
    return RandomOperations(
        {name: ((chosen == index) * signs).sum(1) * most for index, (name, most) in enumerate(LARGEST.items())}
    )


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
