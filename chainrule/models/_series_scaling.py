"""The units in which a network reads and writes the values of a series."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SeriesScaling:
    """Centre and scale of a series for a network.

    Args:
        centre: the value that counts as 0 if the past is unknown.
        scale: the unit, > 0: the typical distance of a value from its reference.
        finest: the smallest standard deviation of a distribution, in units of `scale`: a value that repeats exactly
            would raise a density without bound.

    >>> SeriesScaling.fit(torch.tensor([20.0, 22.0, 18.0, 20.0, 20.5]), anchor=1)
    SeriesScaling(centre=20.1, scale=2.462..., finest=0.101...)
    """

    centre: float = 0.0
    scale: float = 1.0
    finest: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("centre", "scale", "finest"):
            value = getattr(self, name)
            if not math.isfinite(value) or (name != "centre" and value <= 0):
                raise ValueError(f"{name}: expected a finite number{'' if name == 'centre' else ' > 0'}, got {value}")

    @classmethod
    def fit(cls, values: Tensor, anchor: int, observed: Tensor | None = None) -> "SeriesScaling":
        """From training values alone.

        Args:
            values: (T,) of a series.
            anchor: the lag that forecasts are measured from; 0 where they are measured from the centre.
            observed: (T,) booleans, values that were written down; None for all. Others say nothing of the finest step.
        """
        values = values.double()
        if len(values) < anchor + 2:
            raise ValueError(f"values: expected at least {anchor + 2}, got {len(values)}")
        centre = values.mean()
        steps = values[anchor:] - values[:-anchor] if anchor else values - centre
        scale = float(steps.square().mean().sqrt())
        if not 0 < scale < math.inf:
            raise ValueError(f"values: expected finite numbers that change, got {len(values)} of scale {scale:g}")
        gaps = (values if observed is None else values[observed]).unique().diff()
        # Half the step in which values were written down, or a thousandth of the unit.
        finest = float(gaps.min()) / 2 / scale if len(gaps) else 1e-3
        return cls(float(centre), scale, min(max(finest, 1e-3), 0.25))

    @staticmethod
    def stacked(scalings: "tuple[SeriesScaling, ...]") -> Tensor:
        """(3, S) float64: centres, scales and finest scales."""
        return torch.tensor([[s.centre, s.scale, s.finest] for s in scalings], dtype=torch.float64).t().contiguous()
