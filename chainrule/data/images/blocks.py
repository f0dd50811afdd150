"""Small images in characters, for a terminal."""

import numpy as np

from chainrule.data.images.source import Pixels

_SHADES = " ░▒▓█"
_WIDEST = 32  # characters that an image may take


def block_image(images: Pixels) -> str:
    """Images side by side in lines of shaded blocks, two rows of pixels to a line; large ones are made smaller.

    images: (N, C, H, W) of 8 bits; colours are shown by their mean.

    >>> print(block_image(np.array([[[[0, 255], [0, 255], [255, 128], [255, 128]]]], np.uint8)))
     █
    █▒
    """
    grey = images.mean(1)  # (N, H, W)
    step = -(-grey.shape[2] // _WIDEST)
    cells = _means(grey, 2 * step, step)
    shades = np.minimum((cells / 256 * len(_SHADES)).astype(int), len(_SHADES) - 1)
    lines = ("  ".join("".join(_SHADES[shade] for shade in row) for row in rows) for rows in shades.transpose(1, 0, 2))
    return "\n".join(line.rstrip() for line in lines)


def _means(grey: np.ndarray, height: int, width: int) -> np.ndarray:
    """The mean of each rectangle of height × width pixels; those at the far edges may be smaller."""
    rows = np.arange(0, grey.shape[1], height)
    columns = np.arange(0, grey.shape[2], width)
    sums = np.add.reduceat(np.add.reduceat(grey, rows, axis=1), columns, axis=2)
    ones = np.ones_like(grey[:1])
    return sums / np.add.reduceat(np.add.reduceat(ones, rows, axis=1), columns, axis=2)
