"""The activation of the PixelCNN++."""

import torch
from torch import Tensor


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
