"""Which weights of a convolution may read which pixels and channels, as pure functions."""

from typing import Literal

import torch
from torch import Tensor

MaskType = Literal["A", "B"]


def spatial_mask(height: int, width: int, mask_type: MaskType) -> Tensor:
    """The pixels that a kernel may read, in raster order (van den Oord et al. 2016), (height, width) booleans.

    Rows above and pixels to the left; the present pixel only with type B.

    >>> spatial_mask(3, 3, "A").int()
    tensor([[1, 1, 1],
            [1, 0, 0],
            [0, 0, 0]], dtype=torch.int32)
    >>> spatial_mask(3, 3, "B").int()
    tensor([[1, 1, 1],
            [1, 1, 0],
            [0, 0, 0]], dtype=torch.int32)

    Args:
        height: of the kernel, odd.
        width: of the kernel, odd.
        mask_type: "A" for the layer that reads the image, "B" for every later one.

    Raises:
        ValueError: a size is not odd, or the type is neither.
    """
    for name, size in (("height", height), ("width", width)):
        if size < 1 or size % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd {name}, so that a pixel is in the middle, got {size}")
    if mask_type not in ("A", "B"):
        raise ValueError(f"mask_type: expected 'A' (first layer) or 'B' (later layers), got {mask_type!r}")
    centre = (height // 2) * width + width // 2
    last = centre if mask_type == "B" else centre - 1
    return (torch.arange(height * width) <= last).view(height, width)


def channel_group_of(channels: int, groups: int, parts: int = 1, device: torch.device | str | None = None) -> Tensor:
    """The group of each channel, (channels,) integers: contiguous groups, whose sizes differ by one at most.

    >>> channel_group_of(8, 3)
    tensor([0, 0, 0, 1, 1, 1, 2, 2])
    >>> channel_group_of(6, 3, parts=2)
    tensor([0, 1, 2, 0, 1, 2])

    Args:
        channels: how many there are.
        groups: how many groups, one for each colour channel in its order.
        parts: the channels are this many equal runs, each divided on its own: 2 for the two halves of a gate.

    Raises:
        ValueError: a group would be empty, or the runs unequal.
    """
    if parts < 1 or channels % parts:
        raise ValueError(f"channels: expected a multiple of {parts}, one run for each part, got {channels}")
    size = channels // parts
    if not 1 <= groups <= size:
        raise ValueError(
            f"channel_groups: expected 1 to {size}, so that none of the groups of {size} channels is empty, "
            f"got {groups}"
        )
    return (torch.arange(size, device=device) * groups // size).repeat(parts)


def convolution_mask(in_groups: Tensor, out_groups: Tensor, height: int, width: int, mask_type: MaskType) -> Tensor:
    """The weights of a masked convolution that may differ from zero, (out, in, height, width) booleans.

    Earlier pixels are read with all their channels. At the present pixel the mask is block-triangular over channel
    groups: a channel reads those of earlier groups, and with type B those of its own group too.

    >>> groups = channel_group_of(3, 3)
    >>> convolution_mask(groups, groups, 3, 3, "A")[:, :, 1, 1].int()
    tensor([[0, 0, 0],
            [1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    >>> convolution_mask(groups, groups, 3, 3, "B")[:, :, 1, 1].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)

    Args:
        in_groups: (in,) the group of each input channel.
        out_groups: (out,) the group of each output channel.
        height: of the kernel, odd.
        width: of the kernel, odd.
        mask_type: "A" or "B".
    """
    earlier = spatial_mask(height, width, "A")
    mask = earlier.expand(len(out_groups), len(in_groups), height, width).clone()
    spatial_mask(height, width, mask_type)  # refuses a type that is neither
    readers, read = out_groups.unsqueeze(1), in_groups.unsqueeze(0)
    mask[:, :, height // 2, width // 2] = read < readers if mask_type == "A" else read <= readers
    return mask
