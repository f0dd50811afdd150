"""The gated unit of the PixelCNN and WaveNet."""

import torch
from torch import Tensor


def gate(a: Tensor, dim: int = 1) -> Tensor:
    r"""A value that an opening lets through (van den Oord et al. 2016).

    .. math:: y = \tanh(a_1) \odot \sigma(a_2)

    Args:
        a: numbers whose two halves along `dim` are a_1 and a_2.
        dim: the axis of channels.

    >>> gate(torch.tensor([[0.5, 0.0]]))
    tensor([[0.2311]])
    """
    values, openings = a.chunk(2, dim)
    return torch.tanh(values) * torch.sigmoid(openings)
