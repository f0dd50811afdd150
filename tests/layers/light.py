"""What an output depends on, found from gradients: the counterpart of `reach`, which follows the masks."""

import torch


def gradient_reach(function, channels, height, width, groups):
    """(T, T) booleans: whether element t of function(x), (1, M, H, W), has a gradient in element s of x.

    Channels are joined into groups: (group, row, column) is one of T elements, in the order of a flat (groups, H, W).
    """
    x = torch.randn(1, channels, height, width, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: function(x)[0], x)[:, :, :, 0].abs()  # (M, H, W, N, H, W)
    outputs, inputs = (
        torch.nn.functional.one_hot(torch.arange(size) * groups // size, groups).double()
        for size in (jacobian.shape[0], channels)
    )
    joined = torch.einsum("mijnuv,ma,nb->aijbuv", jacobian, outputs, inputs)
    return joined.reshape(groups * height * width, -1) > 0


def mask_reach(reach, height, width, groups):
    """The same from `reach`, which follows lit elements (B, groups, H, W) through the masks."""
    lit = torch.eye(groups * height * width, dtype=torch.bool).view(-1, groups, height, width)
    return reach(lit).flatten(1).t()
