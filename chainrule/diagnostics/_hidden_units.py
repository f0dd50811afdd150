"""Hidden units: saturation, dead units, and units that indicate a property of the text."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule._modes import wide

FLAT = 0.1  # share of the largest slope below which a nonlinearity counts as flat
BINS = 20
SIGMOIDS = ("input", "forget", "output", "reset", "update")


def saturation(values: Tensor, kind: str) -> float:
    """Return the share of values (.., M) at which "tanh" or "sigmoid" is flat: below a tenth of its largest slope."""
    slope = 1 - values**2 if kind == "tanh" else 4 * values * (1 - values)
    return float(wide(slope < FLAT).mean())


def dead_units(values: Tensor) -> float:
    """Return the share of ReLU units that are zero at every element (P, M), and so get no gradient."""
    return float(wide((values == 0).all(0)).mean())


def histogram(values: Tensor) -> Tensor:
    """Return the shares of a gate's values in twenty equal bins of [0, 1]."""
    counts = torch.histc(wide(values.cpu()), BINS, 0, 1)
    return counts / counts.sum()


@dataclass(frozen=True)
class SeparatingUnit:
    """A unit that separates elements with a property from others."""

    unit: int  # index of the unit
    # area under the ROC curve, the probability that an element with the property has the larger value; 0.5 is chance,
    # near 0 the unit separates with the opposite sign
    area: float


def separating_units(values: Tensor, has_property: Tensor, count: int = 5) -> list[SeparatingUnit]:
    r"""Find the `count` best units (P, M) that separate elements with a property (P,) (Mann and Whitney 1947).

    .. math:: \mathrm{area} = P(v_{\text{with}} > v_{\text{without}})
        + \tfrac{1}{2} P(v_{\text{with}} = v_{\text{without}})
    """
    with_it, without = int(has_property.sum()), int((~has_property).sum())
    if not with_it or not without:
        return []
    ranks = _ranks(wide(values))
    areas = (ranks[has_property].sum(0) - with_it * (with_it + 1) / 2) / (with_it * without)
    best = (areas - 0.5).abs().argsort(descending=True, stable=True)[:count]
    return [SeparatingUnit(int(unit), float(areas[unit])) for unit in best]


def _ranks(values: Tensor) -> Tensor:
    """Rank the values of each column from 1, (P, M); ties share their mean rank."""
    ordered = values.t().sort(-1).values.contiguous()
    columns = values.t().contiguous()
    below = torch.searchsorted(ordered, columns, right=False)
    up_to = torch.searchsorted(ordered, columns, right=True)
    return ((below + up_to + 1) / 2).t()
