"""Saliency of image classifiers, by rollout or Grad-CAM, and how far their attention reaches."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from chainrule.models._image_classifier import ConvNet, ImageClassifier
from chainrule.models._vision_transformer import SwinBlock, SwinTransformer, TokenTransformer

if TYPE_CHECKING:
    pass


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
