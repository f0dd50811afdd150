"""Attention weights as heat maps and numbers, and how focused maps of saliency are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt, log, log2
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chainrule.figures import INK, MUTED, new_figure
from chainrule.models import ConvNet, ImageClassifier, SwinTransformer
from chainrule.modes import wide

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_map(weights: Tensor, source: Sequence[str], target: Sequence[str]) -> "Figure":
    """Draw a heat map of attention: a row per target word, a column per source word, darker for larger weights.

    Source: Bahdanau, Cho and Bengio 2015, figure 3.
    """
    if weights.shape != (len(target), len(source)):
        raise ValueError(
            f"weights: expected shape {(len(target), len(source))}, the words of target and source, "
            f"got {tuple(weights.shape)}"
        )
    figure = new_figure(1.5 + 0.4 * len(source), 1.5 + 0.35 * len(target))
    figure.set_dpi(120)
    figure.set_facecolor("white")
    axes = figure.add_subplot()
    axes.imshow(weights.detach().cpu().float().numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(
        range(len(source)), [_plain(word) for word in source], rotation=60, ha="left", rotation_mode="anchor"
    )
    axes.set_yticks(range(len(target)), [_plain(word) for word in target])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return figure


def _plain(word: str) -> str:
    """Escape dollar signs, which matplotlib would read as mathematics."""
    return word.replace("$", r"\$")


_COLUMNS = 5


def image_attention(image: npt.NDArray[np.uint8], words: Sequence[str], weights: Tensor) -> "Figure":
    """Draw an image, and a copy for each word in which attended regions are bright; titles show the largest weights."""
    side = isqrt(weights.shape[1])
    if len(words) != len(weights) or side * side != weights.shape[1]:
        raise ValueError(
            f"weights: expected ({len(words)}, P) with a square number P of places, got {tuple(weights.shape)}"
        )
    rows = ceil((len(words) + 1) / _COLUMNS)
    figure = new_figure(1.5 * _COLUMNS, 1.85 * rows)
    figure.set_facecolor("white")
    pixels = image.transpose(1, 2, 0)
    for index in range(rows * _COLUMNS):
        axes = figure.add_subplot(rows, _COLUMNS, index + 1)
        axes.set_axis_off()
        if index > len(words):
            continue
        if index == 0:
            axes.imshow(pixels)
            axes.set_title("image", fontsize=10, color=MUTED)
            continue
        axes.imshow(brightened(image, weights[index - 1]))
        axes.set_title(f"{words[index - 1]}\n{float(weights[index - 1].max()):.2f}", fontsize=10, color=INK)
    return figure


def brightened(image: npt.NDArray[np.uint8], weights: Tensor) -> npt.NDArray[np.uint8]:
    """Darken regions of an image (3, S, S) with little attention on a square grid (P,), as (S, S, 3)."""
    pixels, side = image.transpose(1, 2, 0), isqrt(len(weights))
    height, width = pixels.shape[:2]
    grid = wide(weights).reshape(side, side)
    light = stretched(grid / grid.max().clamp(min=1e-12), height, width)
    return (pixels * (0.15 + 0.85 * light)[:, :, None]).astype(np.uint8)


def stretched(grid: Tensor, height: int, width: int) -> npt.NDArray[np.float64]:
    """Resize a grid by bilinear interpolation."""
    sized = nn.functional.interpolate(wide(grid)[None, None], (height, width), mode="bilinear", align_corners=False)
    return np.asarray(sized[0, 0])


@dataclass(frozen=True)
class AttentionFocus:
    """Summary of attention weights over all queries."""

    queries: int  # number of queries
    greatest: float  # mean of the largest weight of each query
    entropy: float  # mean entropy of the weights, bits
    even: float  # mean entropy of uniform weights, bits


def attention_focus(weights: Sequence[Tensor]) -> AttentionFocus:
    """Measure how concentrated attention weights (T, S) are, given one tensor per row.

    >>> attention_focus([torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    AttentionFocus(queries=2, greatest=0.75, entropy=0.5, even=1.0)
    """
    queries = [query for row in weights for query in wide(row)]
    if not queries:
        raise ValueError("weights: expected at least one query, got none")
    entropies = [-float(torch.special.xlogy(query, query).sum()) / log(2) for query in queries]
    return AttentionFocus(
        len(queries),
        fmean(float(query.max()) for query in queries),
        fmean(entropies),
        fmean(log2(len(query)) for query in queries),
    )


ROLLOUT = "attention rollout: the patches that the features are mixed from, through all blocks (Abnar and Zuidema 2020)"
GRAD_CAM = "Grad-CAM: the places of the last feature map that speak for the label given (Selvaraju et al. 2017)"


def saliency_method(model: ImageClassifier) -> str:
    """Describe the method that `saliency_maps` uses for a model."""
    return GRAD_CAM if isinstance(model, ConvNet | SwinTransformer) else ROLLOUT


def half_share(maps: Tensor) -> Tensor:
    """Return the smallest share of cells that holds half of each map (B, rows, columns), (B,); small if focused."""
    sorted_shares = maps.flatten(1).sort(1, descending=True).values.cumsum(1)
    return ((sorted_shares < 0.5 - 1e-6).sum(1) + 1) / sorted_shares.shape[1]
