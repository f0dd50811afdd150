"""Points of many dimensions on the plane in which they vary most."""

import torch
from torch import Tensor


def principal_plane(points: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """Points (N, L) on their first two principal components, (N, 2), and the share of the variance of each.

    The sign of a component is arbitrary: its largest weight is made positive, so that the same points look the same.

    >>> plane, shares = principal_plane(torch.tensor([[0.0, 3.0], [0.0, -3.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> plane[:, 0], [round(share, 2) for share in shares]
    (tensor([ 3., -3.,  0.,  0.]), [0.9, 0.1])
    """
    centred = (points - points.mean(0)).double()
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    shares = [*(values**2 / (values**2).sum().clamp_min(1e-30)).tolist(), 0.0, 0.0]
    directions = torch.cat([directions, directions.new_zeros(2, points.shape[1])])[:2]
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    return (centred @ (directions * signs).t()).float() + 0.0, (shares[0], shares[1])
