"""Pixels to look at: PNG files, a grid of samples, and small images in characters for a terminal."""

import io

import numpy as np
from PIL import Image

from chainrule.data._images.source import Pixels


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
        least: smallest width in pixels at which an image is drawn; smaller ones are enlarged.

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
    """Images side by side in lines of shaded blocks, two rows of pixels to a line; large ones are made smaller.

    images: (N, C, H, W) of 8 bits; colours are shown by their mean.
    """
    grey = images.mean(1)  # (N, H, W)
    step = -(-grey.shape[2] // _WIDEST)
    cells = _means(grey, 2 * step, step)
    shades = np.minimum((cells / 256 * len(_SHADES)).astype(int), len(_SHADES) - 1)
    lines = ("  ".join("".join(_SHADES[shade] for shade in row) for row in rows) for rows in shades.transpose(1, 0, 2))
    return "\n".join(line.rstrip() for line in lines)


def _means(grey: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the mean of each rectangle of height × width pixels; those at the far edges may be smaller."""
    rows = np.arange(0, grey.shape[1], height)
    columns = np.arange(0, grey.shape[2], width)
    sums = np.add.reduceat(np.add.reduceat(grey, rows, axis=1), columns, axis=2)
    ones = np.ones_like(grey[:1])
    return sums / np.add.reduceat(np.add.reduceat(ones, rows, axis=1), columns, axis=2)
