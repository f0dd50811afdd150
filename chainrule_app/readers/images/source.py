"""Interface of a source of images: their number and shape, their labels, and their values in blocks."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from chainrule.option_error import OptionError
from chainrule_app.printing import listed

Pixels: TypeAlias = npt.NDArray[np.uint8]
BLOCK_BYTES = 4 << 20  # of images that are in memory together while a source is read


@dataclass(frozen=True)
class ImageLabels:
    """A label for every image."""

    numbers: npt.NDArray[np.int64]  # (N,) the place of each image's label in `names`
    names: tuple[str, ...]  # of the labels, in order

    @classmethod
    def of(cls, values: npt.NDArray[np.int64] | npt.NDArray[np.str_]) -> "ImageLabels":
        """Whole numbers or texts as labels, (N,), each its own name."""
        distinct, numbers = np.unique(values, return_inverse=True)
        return cls(numbers.astype(np.int64), tuple(str(value) for value in distinct.tolist()))

    def among(self, names: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
        """Return the labels as indices into another list of names."""
        places = {name: index for index, name in enumerate(names)}
        unknown = [name for name in self.names if name not in places]
        if unknown:
            raise ValueError(f"{where}: the label {unknown[0]!r} was not in training (known: {listed(names)})")
        return np.array([places[name] for name in self.names], np.int64)[self.numbers]


class ImageSource(ABC):
    """Images of one shape, which can be read repeatedly from the beginning."""

    name: str  # to show and to record, without folders
    label: str  # for errors, with its folders
    kind: str  # folder, npz, npy or idx
    count: int
    shape: tuple[int, int, int]  # (C, H, W)
    labels: ImageLabels | None = None
    deep: int = 0  # images of 16 bits, scaled to 8
    transparent: int = 0  # transparent images, put on white
    skipped: tuple[str, ...] = ()  # names of unreadable images that were left out, where the user chose that
    held_out: Any = None  # another part of the same source that is meant for validation, by what opens it

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
    """
    return max(largest + 1, 2) if largest < 64 else 256


Binarise = Literal["threshold", "fixed", "per-epoch"]


@dataclass(frozen=True)
class Reduction:
    r"""Reduction of values v in [0, L) to levels.

    .. math:: x = \lfloor v\, 2^b / L \rfloor \text{ (b bits)}, \qquad
        x \sim \mathrm{Bernoulli}(v / (L - 1)) \text{ (binarised by a draw)}
    """

    found: int  # L, the levels of the images as they are stored
    bits: int | None = None  # b; `None` keeps all levels
    # two levels: "threshold" is one bit, cut at the middle; "fixed" draws each pixel once; "per-epoch" draws training
    # images again in every epoch (Salakhutdinov and Murray 2008), held-out ones once
    binarise: Binarise | None = None

    def __post_init__(self) -> None:
        if self.binarise is not None and self.bits not in (None, 1):
            raise OptionError("binarise", f"reduces pixels to 1 bit, but bits is {self.bits}", "leave one of them out")
        if self.bits is not None and 2**self.bits > self.found:
            raise OptionError(
                "bits",
                f"{2**self.bits} levels are more than the {self.found} levels of the images",
                "choose fewer bits",
            )
        if self.binarise is not None and self.found == 2:
            raise OptionError("binarise", "the images have 2 levels already", "leave it out")

    @property
    def levels(self) -> int:
        """The levels of x."""
        if self.binarise is not None:
            return 2
        return self.found if self.bits is None else 2**self.bits

    @property
    def draws(self) -> bool:
        """True if an image is not fixed by its values."""
        return self.binarise in ("fixed", "per-epoch")

    def apply(self, values: Pixels, random: np.random.Generator) -> Pixels:
        """Levels of stored values, any shape; `random` is read where pixels are drawn, in their order."""
        if self.draws:
            return (random.random(values.shape) * (self.found - 1) < values).astype(np.uint8)
        if self.levels == self.found:
            return values
        return (values.astype(np.uint32) * self.levels // self.found).astype(np.uint8)

    def __str__(self) -> str:
        if self.binarise == "fixed":
            return "binarised by one fixed draw"
        if self.binarise == "per-epoch":
            return "binarised by a new draw in each epoch, held-out images by one fixed draw"
        if self.binarise == "threshold" or (self.levels == 2 and self.found > 2):
            return "binarised at half of the maximum brightness (threshold)"
        if self.levels == self.found:
            return "8 bits (256 levels)" if self.found == 256 else f"{self.found} levels"
        whole = f"{self.found.bit_length() - 1} bits" if self.found & (self.found - 1) == 0 else f"{self.found} levels"
        return f"{self.bits} of {whole} ({self.levels} levels)"


def png(pixels: Pixels, palette: Pixels | None = None) -> bytes:
    """Return a PNG of grey pixels (H, W) or colours (H, W, 3), 8 bits each; or of indices (H, W) into a palette (K, 3).

    >>> png(np.zeros((2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    image, file = Image.fromarray(pixels), io.BytesIO()
    if palette is not None:
        image.putpalette(palette.tobytes())
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def brightness(levels_of_pixels: Pixels, levels: int) -> Pixels:
    """Levels as 8 bits, black to white, any shape."""
    return (levels_of_pixels.astype(np.float64) * (255 / (levels - 1))).round().astype(np.uint8)


def grid(images: Pixels, columns: int | None = None, *, gap: int = 2, least: int = 56) -> Pixels:
    """Images side by side and below each other, on a grey ground, each pixel drawn as a square of pixels.

    Args:
        images: (N, C, H, W) of 8 bits, C 1 or 3.
        columns: images in a row; by default the grid is about square.
        gap: pixels between two of them.
        least: smallest width in pixels at which an image is drawn; smaller images are enlarged.

    Returns:
        (H', W') or (H', W', 3).
    """
    count, channels, height, width = images.shape
    scale = max(1, -(-least // width))
    columns = columns or int(np.ceil(count**0.5))
    rows = -(-count // columns)
    large = images.repeat(scale, 2).repeat(scale, 3)
    height, width = height * scale + gap, width * scale + gap
    sheet = np.full((channels, rows * height + gap, columns * width + gap), 96, np.uint8)
    for index, image in enumerate(large):
        row, column = divmod(index, columns)
        sheet[:, row * height + gap : (row + 1) * height, column * width + gap : (column + 1) * width] = image
    return sheet[0] if channels == 1 else sheet.transpose(1, 2, 0)


_SHADES = " ░▒▓█"
_WIDEST = 32  # characters that an image may take


def block_image(images: Pixels) -> str:
    """Draw images (N, C, H, W) of 8 bits side by side in shaded blocks, two rows of pixels to a line."""
    step = -(-images.shape[3] // _WIDEST)
    grey = images.mean(1, dtype=np.float32)  # (N, H, W)
    cells = np.stack([np.asarray(Image.fromarray(image).reduce((step, 2 * step))) for image in grey])
    shades = np.minimum((cells / 256 * len(_SHADES)).astype(int), len(_SHADES) - 1)
    lines = ("  ".join("".join(_SHADES[shade] for shade in row) for row in rows) for rows in shades.transpose(1, 0, 2))
    return "\n".join(line.rstrip() for line in lines)
