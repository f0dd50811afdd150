"""Activations of convolutional models: the gated unit of the PixelCNN and WaveNet, and that of the PixelCNN++."""

import torch
from torch import Tensor


def gate(a: Tensor, dim: int = 1) -> Tensor:
    r"""The gated activation unit of the gated PixelCNN and WaveNet (van den Oord et al. 2016).

    .. math:: y = \tanh(a_1) \odot \sigma(a_2)

    Args:
        a: numbers whose two halves along `dim` are a_1 and a_2.
        dim: the axis of channels.

    >>> gate(torch.tensor([[0.5, 0.0]]))
    tensor([[0.2311]])
    """
    values, openings = a.chunk(2, dim)
    return torch.tanh(values) * torch.sigmoid(openings)


def concatenated_elu(x: Tensor, dim: int = 1) -> Tensor:
    r"""Both signs of x through an exponential linear unit, twice as many features (Salimans et al. 2017).

    .. math:: y = [\mathrm{elu}(x), \mathrm{elu}(-x)]

    Args:
        x: numbers of any shape.
        dim: the axis of channels, which is doubled.

    >>> concatenated_elu(torch.tensor([[1.0, 2.0]]))
    tensor([[ 1.0000,  2.0000, -0.6321, -0.8647]])
    """
    return torch.nn.functional.elu(torch.cat([x, -x], dim), inplace=True)
