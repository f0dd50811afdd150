"""What an output depends on, found from gradients and from a run with positive weights."""

import copy

import torch

from chainrule.models._raster_model import dependencies


def joined(channels, groups):
    """(channels, groups): 1 where a channel is in a group."""
    return torch.nn.functional.one_hot(torch.arange(channels) * groups // channels, groups).double()


def gradient_reach(function, channels, height, width, groups):
    """(T, T) booleans: whether element t of function(x), (1, M, H, W), has a gradient in element s of x.

    Channels are joined into groups: (group, row, column) is one of T elements, in the order of a flat (groups, H, W).
    """
    x = torch.randn(1, channels, height, width, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: function(x)[0], x)[:, :, :, 0].abs()  # (M, H, W, N, H, W)
    outputs, inputs = joined(jacobian.shape[0], groups), joined(channels, groups)
    found = torch.einsum("mijnuv,ma,nb->aijbuv", jacobian, outputs, inputs)
    return found.reshape(groups * height * width, -1) > 0


def positive_reach(network, channels, height, width, groups, function=None):
    """The same from a run with positive weights; `function(network, x)` where it is not a call of the network."""
    network = copy.deepcopy(network)
    lit = torch.eye(groups * height * width, dtype=torch.float64).view(-1, groups, height, width)
    inputs = torch.einsum("rbij,nb->rnij", lit, joined(channels, groups))
    seen = dependencies(network, network if function is None else lambda x: function(network, x), inputs)
    outputs = torch.einsum("rmij,ma->raij", seen.double(), joined(seen.shape[1], groups)) > 0
    return outputs.flatten(1).t()
