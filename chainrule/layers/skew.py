"""Skewing: the diagonals of an image as the rows of another."""

import torch
from torch import Tensor


def skew(x: Tensor) -> Tensor:
    r"""Move every row one column to the right of the row above it (van den Oord et al. 2016, Pixel Recurrent Networks).

    .. math:: y_{d, i} = x_{i, d - i} \quad\text{where}\ 0 \le d - i < W, \qquad 0\ \text{elsewhere}

    A pixel and its neighbours above and to the left then stand in two successive diagonals: d and d - 1.

    Args:
        x: (N, H, W, ...).

    Returns:
        (N, H + W - 1, H, ...), diagonal by diagonal.

    >>> skew(torch.tensor([[[1, 2, 3], [4, 5, 6]]]))[0]
    tensor([[1, 0],
            [2, 4],
            [3, 5],
            [0, 6]])
    """
    count, height, width = x.shape[:3]
    # Rows that are H longer, cut again into rows that are only H - 1 longer: each begins one place later.
    longer = torch.cat([x, x.new_zeros(count, height, height, *x.shape[3:])], 2).flatten(1, 2)
    diagonals = height + width - 1
    return longer[:, : height * diagonals].unflatten(1, (height, diagonals)).transpose(1, 2)


def unskew(y: Tensor) -> Tensor:
    """The inverse of `skew`: (N, H + W - 1, H, ...) to (N, H, W, ...). Places outside the image are dropped.

    >>> x = torch.rand(2, 3, 4)
    >>> torch.equal(unskew(skew(x)), x)
    True
    """
    count, diagonals, height = y.shape[:3]
    rows = y.transpose(1, 2).flatten(1, 2)
    longer = torch.cat([rows, rows.new_zeros(count, height, *y.shape[3:])], 1)
    return longer.unflatten(1, (height, diagonals + 1))[:, :, : diagonals + 1 - height]
