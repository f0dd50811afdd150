"""Which outputs of a network depend on which inputs, whatever its weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


@torch.no_grad()
def dependencies(network: nn.Module, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Find which outputs of a network a path connects to a non-zero input.

    It runs with positive weights and zero biases, in float64: then zeros stay zeros through products, rectifiers, gates
    and recurrences, and nothing that is positive cancels. Masks and the order of the layers are its own.

    Args:
        network: written to, so give a copy. A narrow one is as good as a wide one.
        function: of a batch of inputs, by the network.
        inputs: (R, ...) zeros, and other numbers at what is asked about.

    Returns:
        Booleans of the shape of the outputs.

    >>> network = nn.Conv1d(1, 1, 2)
    >>> dependencies(network, network, torch.eye(3).unsqueeze(1))[:, 0].int()
    tensor([[1, 0],
            [1, 1],
            [0, 1]], dtype=torch.int32)
    """
    generator = torch.Generator().manual_seed(0)
    network.double().eval()
    for weight in network.parameters():
        if weight.dim() < 2:
            weight.zero_()
        else:  # of a size that neither vanishes nor overflows in deep networks
            weight.uniform_(0.5, 1.0, generator=generator).mul_(weight[0].numel() ** -0.5)
    return function(inputs.double()) != 0


def raster_dependencies(
    network: nn.Module, function: Callable[[Tensor], Tensor], image_shape: tuple[int, int, int], period: int = 1
) -> Tensor:
    """Which earlier elements can influence which, for a network that reads an image in raster order.

    It does the same at every row, or at every `period` rows, so that the elements of the first ones tell it all.

    Args:
        network: written to, so give a copy.
        function: from images (B, C, H, W) to an output for each element, (B, C, H, W), by the network.
        image_shape: (C, H, W).
        period: rows.

    Returns:
        (T, T) booleans in visiting order, T = H·W·C, true at [t, s] where x_s can influence the output t.
    """
    channels, height, width = image_shape
    time, block = height * width * channels, min(period, height) * width * channels
    first = torch.eye(block, time, device="cpu").view(block, height, width, channels).permute(0, 3, 1, 2)
    seen = dependencies(network, function, first).permute(0, 2, 3, 1).flatten(1)  # (block, T)
    whole = torch.zeros(time, time, dtype=torch.bool, device="cpu")
    for start in range(0, time, block):
        whole[start : start + block, start:] = seen[: time - start, : time - start]
    return whole.t()
