"""Distributions as comparable numbers, their supports, and integrals over these."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution, constraints

from chainrule.heads import Categorical

PROBES = 8
MOST_PROBES = 64
_DEPTH = 40  # halvings of a panel at most
# Methods that read a table of log-probabilities.
PLAIN = (Categorical.log_prob, distributions.Categorical.log_prob)


def probe_values(distribution: Distribution, x: Tensor) -> Tensor:
    """Return a few elements of the support, (K, *element shape)."""
    support = finite_support(distribution)
    if support is not None and support.shape[1:] == x.shape[2:]:
        spread = torch.linspace(0, len(support) - 1, min(PROBES, len(support)), device="cpu").round().long()
        return support[spread.to(support.device)].to(x)
    drawn = distribution.sample().to(x)
    # If positions have different supports, as the columns of a table, take an element of each.
    count = PROBES - PROBES // 2 if has_support(distribution) else min(x.shape[1], MOST_PROBES)
    return torch.cat([x.flatten(0, 1)[: PROBES // 2], drawn.flatten(0, 1)[:count]])


def values(distribution: Distribution, probes: Tensor, axes: int) -> Tensor:
    """Return the log-probabilities of all categorical symbols, else of the probes, (B, K) or (B, T, K)."""
    if isinstance(distribution, distributions.Categorical):
        logits = distribution.logits
        if type(distribution).log_prob not in PLAIN:  # an overridden log_prob may disagree with the table
            for probe in probes[:4]:
                at_probe = _at(distribution, probe.unsqueeze(0), axes).view_as(logits[..., :1])
                logits = logits.index_copy(-1, probe.long().view(1), at_probe)
        return logits.flatten(axes)
    return _at(distribution, probes, axes)


def _at(distribution: Distribution, probes: Tensor, axes: int) -> Tensor:
    shape, elements = distribution.batch_shape[:axes], probes.shape[1:]
    grid = probes.view(-1, *[1] * axes, *elements).expand(-1, *shape, *elements)
    return distribution.log_prob(grid).movedim(0, axes).flatten(axes)


def distance(left: Tensor, right: Tensor) -> Tensor:
    """Return the largest difference over the last axis, relative to numbers above 1.

    Equal infinities and pairs of NaN have distance 0; an infinity or NaN is infinitely far from a finite number.
    """
    scale = 1 + torch.where(left.isfinite(), left.abs(), 0).amax(-1, keepdim=True)
    gap = (left - right).abs() / scale
    gap = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, gap)
    return gap.nan_to_num(nan=torch.inf, posinf=torch.inf).amax(-1)


LARGEST = 65536  # maximum number of listed values


def finite_support(distribution: Distribution) -> Tensor | None:
    """Return every value of an element, (K, *event shape); `None` if they cannot be listed."""
    if isinstance(distribution, distributions.Independent):
        return _vectors(distribution)
    if distribution.has_enumerate_support:
        try:
            values = distribution.enumerate_support(expand=False)
        except NotImplementedError:  # raised by torch for a support that cannot be listed
            return None
        return values.reshape(values.shape[0], *distribution.event_shape) if len(values) <= LARGEST else None
    constraint = _constraint(distribution)
    if getattr(constraint, "is_discrete", False) and not distribution.event_shape:
        low, high = _ends(constraint)
        if low > -float("inf") and high - low < LARGEST:
            return torch.arange(low, high + 1, device="cpu")
    return None


def interval(distribution: Distribution) -> tuple[float, float] | None:
    """Return the bounds of the support of a real number; `None` for any other element."""
    constraint = _constraint(distribution)
    if constraint is None or constraint.is_discrete or constraint.event_dim or distribution.event_shape:
        return None
    if constraint is constraints.real or hasattr(constraint, "lower_bound") or hasattr(constraint, "upper_bound"):
        return _ends(constraint)
    return None


def has_real_support(distribution: Distribution) -> bool:
    """Return true if every entry of an element may be any real number."""
    constraint = _constraint(distribution)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return constraint is constraints.real or constraint is constraints.real_vector


def has_support(distribution: Distribution) -> bool:
    """Return false if the support differs between positions."""
    return _constraint(distribution) is not None


def _constraint(distribution: Distribution) -> Any:
    try:
        constraint: Any = distribution.support
    except NotImplementedError:  # raised by torch for a distribution without a common support
        return None
    if isinstance(distribution, distributions.MixtureSameFamily):
        return constraint.base_constraint if hasattr(constraint, "base_constraint") else constraint
    return constraint


def _ends(constraint: Any) -> tuple[float, float]:
    low = torch.as_tensor(getattr(constraint, "lower_bound", -float("inf")))
    high = torch.as_tensor(getattr(constraint, "upper_bound", float("inf")))
    return float(low.min()), float(high.max())


def _vectors(distribution: distributions.Independent) -> Tensor | None:
    """List all vectors of independent entries."""
    entry = finite_support(distribution.base_dist)
    entries = distribution.event_shape.numel()
    if entry is None or entry.dim() != 1 or len(entry) ** entries > 4096:
        return None
    combinations = torch.tensor(list(product(range(len(entry)), repeat=entries)), device=entry.device)
    return entry[combinations].reshape(-1, *distribution.event_shape)


def integral(density: Callable[[Tensor], Tensor], low: float, high: float, hints: Tensor) -> tuple[float, float]:
    """Integrate `density` from low to high, and estimate the error.

    Gauss-Legendre panels lie between the hints (points near the mass, such as draws from the density) and are halved
    where a panel and its two halves disagree. Panels of doubling width cover the range beyond the outermost hints.
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
    """Integrate from left (N,) to right (N,) with 8 points each, (N,)."""
    nodes, weights = _gauss_legendre(left.device)
    half = ((right - left) / 2).unsqueeze(1)
    points = (left + right).unsqueeze(1) / 2 + half * nodes
    heights = density(points.flatten()).view(points.shape).nan_to_num(nan=0.0, posinf=0.0)
    return (heights * weights * half).sum(1)


def _gauss_legendre(device: torch.device) -> tuple[Tensor, Tensor]:
    nodes, weights = numpy.polynomial.legendre.leggauss(8)
    return torch.from_numpy(nodes).to(device), torch.from_numpy(weights).to(device)
