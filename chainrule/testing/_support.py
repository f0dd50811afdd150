"""The support of a distribution: its values where they can be listed, its ends where it is an interval."""

from itertools import product
from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution, constraints

LARGEST = 65536  # no more values than this are listed


def finite_support(distribution: Distribution) -> Tensor | None:
    """Every value that one element can take, (K, *event shape); `None` where they cannot be listed."""
    if isinstance(distribution, distributions.Independent):
        return _vectors(distribution)
    if distribution.has_enumerate_support:
        try:
            values = distribution.enumerate_support(expand=False)
        except NotImplementedError:  # torch's word for a support that cannot be listed
            return None
        return values.reshape(values.shape[0], *distribution.event_shape) if len(values) <= LARGEST else None
    constraint = _constraint(distribution)
    if getattr(constraint, "is_discrete", False) and not distribution.event_shape:
        low, high = _ends(constraint)
        if low > -float("inf") and high - low < LARGEST:
            return torch.arange(low, high + 1, device="cpu")
    return None


def interval(distribution: Distribution) -> tuple[float, float] | None:
    """The ends of the support of one real number; `None` for anything else."""
    constraint = _constraint(distribution)
    if constraint is None or constraint.is_discrete or constraint.event_dim or distribution.event_shape:
        return None
    if constraint is constraints.real or hasattr(constraint, "lower_bound") or hasattr(constraint, "upper_bound"):
        return _ends(constraint)
    return None


def has_real_support(distribution: Distribution) -> bool:
    """Whether every entry of an element may be any real number."""
    constraint = _constraint(distribution)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return constraint is constraints.real or constraint is constraints.real_vector


def has_support(distribution: Distribution) -> bool:
    """Whether a distribution says what its support is: one that has several, position by position, does not."""
    return _constraint(distribution) is not None


def _constraint(distribution: Distribution) -> Any:
    try:
        constraint: Any = distribution.support
    except NotImplementedError:  # torch's word for a distribution without one support
        return None
    if isinstance(distribution, distributions.MixtureSameFamily):
        return constraint.base_constraint if hasattr(constraint, "base_constraint") else constraint
    return constraint


def _ends(constraint: Any) -> tuple[float, float]:
    low = torch.as_tensor(getattr(constraint, "lower_bound", -float("inf")))
    high = torch.as_tensor(getattr(constraint, "upper_bound", float("inf")))
    return float(low.min()), float(high.max())


def _vectors(distribution: distributions.Independent) -> Tensor | None:
    """All vectors of independent entries, each from the same values."""
    entry = finite_support(distribution.base_dist)
    entries = distribution.event_shape.numel()
    if entry is None or entry.dim() != 1 or len(entry) ** entries > 4096:
        return None
    combinations = torch.tensor(list(product(range(len(entry)), repeat=entries)), device=entry.device)
    return entry[combinations].reshape(-1, *distribution.event_shape)
