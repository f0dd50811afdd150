"""A distribution as numbers that can be compared."""

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.heads import Categorical
from chainrule.testing._support import finite_support, has_support

PROBES = 8
MOST_PROBES = 64
# Known to read a table of log-probabilities.
PLAIN = (Categorical.log_prob, distributions.Categorical.log_prob)


def probe_values(distribution: Distribution, x: Tensor) -> Tensor:
    """A few elements inside the support, (K, *element shape)."""
    support = finite_support(distribution)
    if support is not None and support.shape[1:] == x.shape[2:]:
        chosen = torch.linspace(0, len(support) - 1, min(PROBES, len(support)), device="cpu").round().long()
        return support[chosen.to(support.device)].to(x)
    drawn = distribution.sample().to(x)
    # Where positions have supports of their own, as columns of a table, an element of each of them.
    count = PROBES - PROBES // 2 if has_support(distribution) else min(x.shape[1], MOST_PROBES)
    return torch.cat([x.flatten(0, 1)[: PROBES // 2], drawn.flatten(0, 1)[:count]])


def values(distribution: Distribution, probes: Tensor, axes: int) -> Tensor:
    """The log-probabilities that tell one distribution from another, (B, K) or (B, T, K) for 1 or 2 axes, nats.

    All of them for a categorical distribution; those of the probes for any other.
    """
    if isinstance(distribution, distributions.Categorical):
        logits = distribution.logits
        if type(distribution).log_prob not in PLAIN:  # then the table may not be what log_prob says
            for probe in probes[:4]:
                logits = logits.index_copy(
                    -1, probe.long().view(1), _at(distribution, probe, axes).view_as(logits[..., :1])
                )
        return logits.flatten(axes)
    return torch.cat([_at(distribution, probe, axes) for probe in probes], -1)


def _at(distribution: Distribution, probe: Tensor, axes: int) -> Tensor:
    shape = distribution.batch_shape[:axes]
    return distribution.log_prob(probe.expand(shape + probe.shape)).reshape(*shape, -1)


def distance(left: Tensor, right: Tensor) -> Tensor:
    """The largest difference over the last axis, relative to the size of the numbers where they exceed 1.

    Equal infinities, and two that are not numbers, are no difference; one of either against a number is infinitely far.
    """
    scale = 1 + torch.where(left.isfinite(), left.abs(), 0).amax(-1, keepdim=True)
    gap = (left - right).abs() / scale
    gap = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, gap)
    return gap.nan_to_num(nan=torch.inf, posinf=torch.inf).amax(-1)
