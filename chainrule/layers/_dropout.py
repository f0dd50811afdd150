"""Dropout whose masks are cheap to draw."""

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability p and scale the others so that the mean stays (Srivastava et al. 2014).

    The function of `torch.nn.functional.dropout`, which draws a random number for each element, one after the other: on
    a processor a tenth of a training step of a small LSTM. Here four elements share the 64 bits of one, so that p is
    rounded to the next 1/65,536; the scale belongs to the rounded p.

    Args:
        x: of any shape.
        p: in [0, 1).
        training: x itself is returned where false.

    >>> torch.equal(dropout(torch.ones(3), 0.5, training=False), torch.ones(3))
    True
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":  # a GPU draws them in parallel
        return nn.functional.dropout(x, p)
    kept = min(max(round((1 - p) * _LEVELS), 1), _LEVELS - 1)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (levels < kept - _LEVELS // 2).to(x.dtype).mul_(_LEVELS / kept)
