"""The integral of a density over an interval, found without knowing where its mass is."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor

_DEPTH = 40


def integral(density: Callable[[Tensor], Tensor], low: float, high: float, hints: Tensor) -> tuple[float, float]:
    """The integral of `density` from low to high, and an estimate of its error.

    Gauss-Legendre panels between the hints (places where the mass may be, as draws from the density are), halved where
    one panel and its two halves disagree; what lies beyond the outermost hints is covered by panels that double in
    width.

    Args:
        density: (N,) values for (N,) points.
        low, high: the ends, infinite ones included.
        hints: (H,) places between them.
    """
    edges = _edges(low, high, hints)
    left, right = edges[:-1], edges[1:]
    total, error = 0.0, 0.0
    coarse = _panels(density, left, right)
    for depth in range(_DEPTH):
        middle = (left + right) / 2
        halves = _panels(density, torch.cat([left, middle]), torch.cat([middle, right])).view(2, -1)
        gap = (halves.sum(0) - coarse).abs()
        rough = (gap > 1e-7) & (middle > left) & (middle < right) & (depth < _DEPTH - 1)
        if int(rough.sum()) > 20_000:
            rough = torch.zeros_like(rough)
        total += float(halves.sum(0)[~rough].sum())
        error += float(gap[~rough].sum())
        if not rough.any():
            break
        left, right = torch.cat([left[rough], middle[rough]]), torch.cat([middle[rough], right[rough]])
        coarse = halves[:, rough].flatten()
    return total, error


def _edges(low: float, high: float, hints: Tensor) -> Tensor:
    inside = hints.flatten().double().clamp(low, high).unique()
    spread = max(float(inside[-1] - inside[0]), 1e-3 * float(inside.abs().max()), 1e-6)
    doubling = spread * 2.0 ** torch.arange(-20, 40, dtype=torch.float64, device=hints.device)
    edges = torch.cat([inside, inside[0] - doubling, inside[-1] + doubling]).clamp(low, high)
    ends = [end for end in (low, high) if abs(end) != float("inf")]
    return torch.cat([edges, edges.new_tensor(ends)]).unique()


def _panels(density: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    """(N,) the integrals from left to right (N,), by 8 points each."""
    nodes, weights = _gauss_legendre(left.device)
    half = ((right - left) / 2).unsqueeze(1)
    points = (left + right).unsqueeze(1) / 2 + half * nodes
    heights = density(points.flatten()).view(points.shape).nan_to_num(nan=0.0, posinf=0.0)
    return (heights * weights * half).sum(1)


def _gauss_legendre(device: torch.device) -> tuple[Tensor, Tensor]:
    nodes, weights = numpy.polynomial.legendre.leggauss(8)
    return torch.from_numpy(nodes).to(device), torch.from_numpy(weights).to(device)
