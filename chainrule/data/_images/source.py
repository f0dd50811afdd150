"""Interface of a source of images: their number and shape, their labels, and their values in blocks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
BLOCK_BYTES = 4 << 20  # of images that are in memory together while a source is read


@dataclass(frozen=True)
class ImageLabels:
    """A label for every image.

    Args:
        numbers: (N,) the place of each image's label in `names`.
        names: of the labels, in order.
    """

    numbers: npt.NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: npt.NDArray[np.int64] | npt.NDArray[np.str_]) -> "ImageLabels":
        """Whole numbers or texts as labels, (N,), each its own name.

        >>> ImageLabels.of(np.array([3, 7, 3])).names
        ('3', '7')
        """
        distinct, numbers = np.unique(values, return_inverse=True)
        return cls(numbers.astype(np.int64), tuple(str(value) for value in distinct.tolist()))

    def among(self, names: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
        """Return the labels as indices into another list of names."""
        places = {name: index for index, name in enumerate(names)}
        unknown = [name for name in self.names if name not in places]
        if unknown:
            raise ValueError(f"{where}: the label {unknown[0]!r} was not in training (known: {', '.join(names):.200})")
        return np.array([places[name] for name in self.names], np.int64)[self.numbers]


class ImageSource(ABC):
    """Images of one shape, which can be read again and again from the beginning.

    Attributes:
        name: to show and to record, without folders.
        label: for errors, with its folders.
        kind: folder, npz, npy or idx.
        count: N images.
        shape: (C, H, W).
        labels: of all images, or `None`.
        deep: how many images were of 16 bits, scaled to 8.
        transparent: how many were transparent, put on white.
        skipped: names of images that could not be read and were left out, where that was asked for.
        held_out: another part of the same file that is meant to be held out, by the name that opens it.
    """

    name: str
    label: str
    kind: str
    count: int
    shape: tuple[int, int, int]
    labels: ImageLabels | None = None
    deep: int = 0
    transparent: int = 0
    skipped: tuple[str, ...] = ()
    held_out: str | None = None

    @property
    @abstractmethod
    def levels(self) -> int:
        """The number of values that a channel of a pixel may have."""

    @abstractmethod
    def blocks(self) -> Iterator[Pixels]:
        """Return all images in order, as blocks (n, C, H, W) of values in [0, levels)."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""

    def called(self, index: int) -> str:
        """Return the name that identifies the image at this index, from 0, to a reader."""
        return f"{self.name}[{index}]"

    def _rows_of_a_block(self) -> int:
        return max(1, BLOCK_BYTES // int(np.prod(self.shape)))


def spread_over(pixels: Pixels, levels: int) -> Pixels:
    """Brightness from black (0) to white (255) as so many levels.

    >>> spread_over(np.array([0, 100, 255], np.uint8), 17).tolist()
    [0, 6, 16]
    """
    if levels == 256:
        return pixels
    wide = pixels.astype(np.uint16)  # no wider: an image may have 89 million pixels
    return ((wide * (levels - 1) + 127) // 255).astype(np.uint8)


def found_levels(largest: int) -> int:
    """Return the number of levels, inferred from the largest value: 256, unless that value is below 64.

    Digits of 8x8 pixels have 17 levels, binary images 2. Images of 8 bits keep all 256 levels, even if none of their
    pixels is very bright.

    >>> found_levels(1), found_levels(16), found_levels(200)
    (2, 17, 256)
    """
    return max(largest + 1, 2) if largest < 64 else 256
