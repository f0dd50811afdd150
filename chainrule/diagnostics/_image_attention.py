"""The places that a captioner attended to for each word."""

from collections.abc import Sequence
from math import ceil, isqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from chainrule._modes import wide
from chainrule.diagnostics._panels import INK, MUTED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 5


def image_attention(image: npt.NDArray[np.uint8], words: Sequence[str], weights: Tensor) -> "Figure":
    """Draw the image, and once more for each word with the places that were looked at left bright.

    Args:
        image: (3, S, S), values from 0 to 255.
        words: T of them.
        weights: (T, P) attention over a square grid of P places, row by row, as `Captioner.attended` gives it.

    Returns:
        A figure. The number under each word is its greatest weight: 1/P where attention is even.

    Raises:
        ValueError: there are not as many weights as words, or the grid is not square.
        ImportError: matplotlib is missing.
    """
    side = isqrt(weights.shape[1])
    if len(words) != len(weights) or side * side != weights.shape[1]:
        raise ValueError(
            f"weights: expected ({len(words)}, P) with a square number P of places, got {tuple(weights.shape)}"
        )
    rows = ceil((len(words) + 1) / _COLUMNS)
    figure = new_figure(1.5 * _COLUMNS, 1.85 * rows)
    figure.set_facecolor("white")
    pixels = image.transpose(1, 2, 0)
    for place in range(rows * _COLUMNS):
        axes = figure.add_subplot(rows, _COLUMNS, place + 1)
        axes.set_axis_off()
        if place > len(words):
            continue
        if place == 0:
            axes.imshow(pixels)
            axes.set_title("image", fontsize=10, color=MUTED)
            continue
        axes.imshow(brightened(image, weights[place - 1]))
        axes.set_title(f"{words[place - 1]}\n{float(weights[place - 1].max()):.2f}", fontsize=10, color=INK)
    return figure


def brightened(image: npt.NDArray[np.uint8], weights: Tensor) -> npt.NDArray[np.uint8]:
    """The image (S, S, 3), dark where it was not looked at; between the grid's places the light changes evenly.

    Args:
        image: (3, S, S), values from 0 to 255.
        weights: (P,) attention over a square grid of P places, row by row.
    """
    pixels, side = image.transpose(1, 2, 0), isqrt(len(weights))
    height, width = pixels.shape[:2]
    looked = wide(weights).reshape(side, side)
    light = stretched(looked / looked.max().clamp(min=1e-12), height, width)
    return (pixels * (0.15 + 0.85 * light)[:, :, None]).astype(np.uint8)


def stretched(grid: Tensor, height: int, width: int) -> npt.NDArray[np.float64]:
    """A grid of places drawn so large, values between the middles of places interpolated linearly."""
    sized = nn.functional.interpolate(wide(grid)[None, None], (height, width), mode="bilinear", align_corners=False)
    return np.asarray(sized[0, 0])
