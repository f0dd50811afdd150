"""How far the attention of a classifier of images reaches."""

import torch
from torch import Tensor, nn

from chainrule.models._compact_transformer import CompactTransformer
from chainrule.models._swin_transformer import SwinBlock, SwinTransformer
from chainrule.models._vision_transformer import VisionTransformer


def attention_distance(model: nn.Module, images: Tensor) -> list[list[float]]:
    r"""Distance of attention of each block and head, pixels (Dosovitskiy et al. 2021, appendix D.7).

    .. math:: d_h = \operatorname{mean}_{x, i} \sum_j \alpha_{hij} \, \lVert p_i - p_j \rVert

    over images x and places i, with p the middles of places; a class token has no place and is left out.

    Args:
        model: a classifier of images; one without attention has an empty list.
        images: (B, C, H, W).

    >>> import torch
    >>> model = VisionTransformer((1, 8, 8), 2, levels=2, model_size=8, num_layers=2, num_heads=2)
    >>> [len(heads) for heads in attention_distance(model, torch.zeros(3, 1, 8, 8))]
    [2, 2]
    """
    match model:
        case VisionTransformer() | CompactTransformer():
            height, width = model.grid()
            away = _away(height, width, model.image_shape[1] / height)
            places = height * width  # the last ones: a class token comes before them
            return [_mean(found[:, :, -places:, -places:], away) for found in model.attended(images)]
        case SwinTransformer():
            h, distances = model.patches(model.scaled(images)).permute(0, 2, 3, 1), []
            for layer in model.stages:
                if isinstance(layer, SwinBlock):
                    side, pixels = layer.mixer.window, model.image_shape[1] / h.shape[1]
                    found = layer.mixer.attended(layer.norm1(h)).flatten(0, 1)
                    distances.append(_mean(found, _away(side, side, pixels)))
                h = layer(h)
            return distances
    return []


def _away(height: int, width: int, pixels: float) -> Tensor:
    """(T, T) distances between the places of a grid, row by row."""
    rows, columns = torch.meshgrid(torch.arange(height, device="cpu"), torch.arange(width, device="cpu"), indexing="ij")
    places = torch.stack([rows.flatten(), columns.flatten()], 1).float() * pixels
    return torch.cdist(places, places)


def _mean(weights: Tensor, away: Tensor) -> list[float]:
    """(B, H, T, T) weights to a distance for each head; weights of what was left out are given to the rest."""
    shares = weights / weights.sum(-1, keepdim=True)
    return [float(distance) for distance in (shares.detach().cpu() * away).sum(-1).mean((0, 2))]
