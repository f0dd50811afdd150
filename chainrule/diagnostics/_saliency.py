"""Saliency maps of image classifiers, by attention rollout or Grad-CAM."""

import torch
from torch import Tensor

from chainrule.models._compact_transformer import CompactTransformer
from chainrule.models._conv_net import ConvNet
from chainrule.models._image_classifier import ImageClassifier
from chainrule.models._swin_transformer import SwinTransformer
from chainrule.models._vision_transformer import VisionTransformer

ROLLOUT = "attention rollout: the patches that the features are mixed from, through all blocks (Abnar and Zuidema 2020)"
GRAD_CAM = "Grad-CAM: the places of the last feature map that speak for the label given (Selvaraju et al. 2017)"


def saliency_method(model: ImageClassifier) -> str:
    """The method that `saliency_maps` uses for a model, in words."""
    return GRAD_CAM if isinstance(model, ConvNet | SwinTransformer) else ROLLOUT


@torch.no_grad()
def saliency_maps(model: ImageClassifier, images: Tensor, labels: Tensor) -> Tensor:
    r"""Saliency map of each image, (B, rows, columns): shares that sum to 1, or are all 0.

    For `VisionTransformer` and `CompactTransformer` it is attention rollout,

    .. math:: r\, \tilde A_L \cdots \tilde A_1, \qquad \tilde A_l = \tfrac{1}{2} (I + \operatorname{mean}_h A_{lh})

    with r the places that the features are taken from: the class token, all patches evenly, or the weights of sequence
    pooling. It is the same for any label. For `ConvNet` and `SwinTransformer` it is Grad-CAM of the last feature map F,

    .. math:: \mathrm{relu}\Bigl(\sum_d \bar g_d F_d\Bigr), \qquad
        \bar g_d = \operatorname{mean}_{ij} \partial\, \mathrm{logit}_y / \partial F_{dij}

    which for a linear layer over the mean of F, as here, has the layer's own weights as :math:`\bar g`, up to a factor.

    Args:
        model: in evaluation mode.
        images: (B, C, H, W).
        labels: (B,) y, those that are to be explained: usually the answers given.

    Raises:
        TypeError: the model is of another class.

    >>> model = VisionTransformer((1, 8, 8), 2, levels=2, model_size=8, num_layers=2, num_heads=2).eval()
    >>> saliency_maps(model, torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.long)).shape
    torch.Size([3, 2, 2])
    """
    match model:
        case VisionTransformer() | CompactTransformer():
            read = rollout(model.attended(images), model.pooling_weights(images))
            rows, columns = model.grid()
            found = read[:, -rows * columns :].unflatten(1, (rows, columns))  # less a class token, which comes first
        case ConvNet() | SwinTransformer():
            features = model.feature_map(model.scaled(images))
            found = torch.einsum("bdij,bd->bij", features, model.output.weight[labels]).relu()
        case _:
            raise TypeError(f"model: expected a classifier of images, got {type(model).__name__}")
    return found / found.sum((1, 2), keepdim=True).clamp(min=torch.finfo(found.dtype).tiny)


def rollout(attention: list[Tensor], pooling: Tensor) -> Tensor:
    """Shares (B, T) of the places that features are mixed from.

    Args:
        attention: of each block, (B, H, T, T), the first block first.
        pooling: (B, T) of what the last block returns.

    >>> rollout([torch.eye(2).expand(1, 3, 2, 2)], torch.tensor([[0.25, 0.75]])).tolist()
    [[0.25, 0.75]]
    """
    read = pooling.to(attention[0].dtype).unsqueeze(1)
    for weights in reversed(attention):
        read = (read + read @ weights.mean(1)) / 2
    return read.squeeze(1)


def half_share(found: Tensor) -> Tensor:
    """Smallest share of places that holds half of each map (B, rows, columns), (B,); small for a focused map.

    >>> half_share(torch.tensor([[[0.25, 0.25], [0.25, 0.25]], [[1.0, 0.0], [0.0, 0.0]]])).tolist()
    [0.5, 0.25]
    """
    sorted_shares = found.flatten(1).sort(1, descending=True).values.cumsum(1)
    return ((sorted_shares < 0.5 - 1e-6).sum(1) + 1) / sorted_shares.shape[1]
