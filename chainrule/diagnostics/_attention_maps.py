"""Attention weights as heat maps and numbers; saliency of image classifiers, by rollout or Grad-CAM."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt, log, log2
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chainrule.diagnostics._panels import INK, MUTED, new_figure
from chainrule.models._image_classifier import ConvNet, ImageClassifier
from chainrule.models._vision_transformer import SwinBlock, SwinTransformer, TokenTransformer
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


@torch.no_grad()
def saliency_maps(model: ImageClassifier, images: Tensor, labels: Tensor) -> Tensor:
    r"""Compute the saliency map of each image, (B, rows, columns): shares that sum to 1, or are all 0.

    For `VisionTransformer` this is attention rollout,

    .. math:: r\, \tilde A_L \cdots \tilde A_1, \qquad \tilde A_l = \tfrac{1}{2} (I + \operatorname{mean}_h A_{lh})

    with r the pooling weights: the class token, or all patches evenly. It does not
    depend on the label. For `ConvNet` and `SwinTransformer` this is Grad-CAM of the last feature map F,

    .. math:: \mathrm{relu}\Bigl(\sum_d \bar g_d F_d\Bigr), \qquad
        \bar g_d = \operatorname{mean}_{ij} \partial\, \mathrm{logit}_y / \partial F_{dij}

    where :math:`\bar g` equals, up to a factor, the weights of the linear layer over the mean of F.

    Args:
        model: the classifier, in evaluation mode.
        images: (B, C, H, W).
        labels: (B,) labels y to explain, usually the predictions.

    >>> from chainrule.models import VisionTransformer
    >>> model = VisionTransformer((1, 8, 8), 2, levels=2, model_size=8, num_layers=2, num_heads=2).eval()
    >>> saliency_maps(model, torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.long)).shape
    torch.Size([3, 2, 2])
    """
    match model:
        case TokenTransformer():
            read = rollout(model.attended(images), model.pooling_weights(images))
            rows, columns = model.grid()
            maps = read[:, -rows * columns :].unflatten(1, (rows, columns))  # without the class token, which is first
        case ConvNet() | SwinTransformer():
            features = model.feature_map(model.scaled(images))
            maps = torch.einsum("bdij,bd->bij", features, model.output.weight[labels.long()]).relu()
        case _:
            raise TypeError(f"model: expected a classifier of images, got {type(model).__name__}")
    return maps / maps.sum((1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)


def rollout(attention: list[Tensor], pooling: Tensor) -> Tensor:
    """Trace pooling weights (B, T) back through the attention (B, H, T, T) of each block, first block first."""
    read = pooling.to(attention[0].dtype).unsqueeze(1)
    for weights in reversed(attention):
        read = (read + read @ weights.mean(1)) / 2
    return read.squeeze(1)


def half_share(maps: Tensor) -> Tensor:
    """Return the smallest share of cells that holds half of each map (B, rows, columns), (B,); small if focused."""
    sorted_shares = maps.flatten(1).sort(1, descending=True).values.cumsum(1)
    return ((sorted_shares < 0.5 - 1e-6).sum(1) + 1) / sorted_shares.shape[1]


def attention_distance(model: nn.Module, images: Tensor) -> list[list[float]]:
    r"""Measure the attention distance of each block and head, pixels (Dosovitskiy et al. 2021, appendix D.7).

    .. math:: d_h = \operatorname{mean}_{x, i} \sum_j \alpha_{hij} \, \lVert p_i - p_j \rVert

    over images x and patches i with centres p; class tokens are ignored, and models without attention give [].

    >>> from chainrule.models import VisionTransformer
    >>> model = VisionTransformer((1, 8, 8), 2, levels=2, model_size=8, num_layers=2, num_heads=2)
    >>> [len(heads) for heads in attention_distance(model, torch.zeros(3, 1, 8, 8))]
    [2, 2]
    """
    match model:
        case TokenTransformer():
            height, width = model.grid()
            away = _away(height, width, model.image_shape[1] / height)
            patches = height * width  # the last ones: a class token precedes them
            return [_mean(weights[:, :, -patches:, -patches:], away) for weights in model.attended(images)]
        case SwinTransformer():
            h, distances = model.patches(model.scaled(images)).permute(0, 2, 3, 1), []
            for layer in model.stages:
                if isinstance(layer, SwinBlock):
                    side, pixels = layer.mixer.window, model.image_shape[1] / h.shape[1]
                    weights = layer.mixer.attended(layer.norm1(h)).flatten(0, 1)
                    distances.append(_mean(weights, _away(side, side, pixels)))
                h = layer(h)
            return distances
    return []


def _away(height: int, width: int, pixels: float) -> Tensor:
    """Return the distances between the cells of a grid, row by row, (T, T)."""
    rows, columns = torch.meshgrid(torch.arange(height, device="cpu"), torch.arange(width, device="cpu"), indexing="ij")
    centres = torch.stack([rows.flatten(), columns.flatten()], 1).float() * pixels
    return torch.cdist(centres, centres)


def _mean(weights: Tensor, away: Tensor) -> list[float]:
    """Average distances by renormalised weights (B, H, T, T), for each head."""
    shares = weights / weights.sum(-1, keepdim=True)
    return [float(distance) for distance in (shares.detach().cpu() * away).sum(-1).mean((0, 2))]
