"""Statistics of gradient clipping in a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True)
class Clipping:
    """Statistics of gradient clipping, from the logged norms before clipping."""

    limit: float | None  # θ, the maximum norm; `None` if clipping was off
    steps: int  # number of weight updates
    logged_steps: Sequence[int]  # updates with a logged norm
    logged_norms: Sequence[float]  # gradient norms before clipping
    share: float  # share of the logged steps that were clipped
    factor: float  # mean multiplier θ/‖g‖ of the clipped steps; 1 without clipping

    def sentence(self) -> str:
        """Describe the effect of clipping and the steps it is based on."""
        if len(self.logged_steps) == self.steps:
            basis = f"of the {self.steps:,} steps of training"
        else:
            basis = f"of the {len(self.logged_steps):,} steps of training that are logged ({self.steps:,} were made)"
        norms = f"the median norm was {median(self.logged_norms):.3g}, the largest {max(self.logged_norms):.3g}"
        if self.limit is None:
            return f"Nothing was to be clipped; {basis}, {norms}."
        if not self.share:
            return f"No gradient was longer than the limit of {self.limit:g}, so nothing was clipped; {basis}, {norms}."
        return (
            f"{self.share:.1%} {basis} had a gradient longer than the limit of {self.limit:g} and were clipped, to "
            f"{self.factor:.0%} of their length on average; {norms}."
        )


def clipping(metrics: Iterable[dict[str, Any]], limit: float | None) -> Clipping | None:
    r"""Summarise records of metrics.jsonl, with the run's `clip_norm` θ as the limit; `None` without training steps.

    .. math:: g \leftarrow g \cdot \min(1, \theta / \lVert g \rVert)
    """
    logged = [
        (int(record["step"]), float(record["gradient_norm"])) for record in metrics if record.get("event") == "step"
    ]
    if not logged:
        return None
    longer = [] if limit is None else [limit / norm for _, norm in logged if norm > limit]
    return Clipping(
        limit=limit,
        steps=max(step for step, _ in logged),
        logged_steps=[step for step, _ in logged],
        logged_norms=[norm for _, norm in logged],
        share=len(longer) / len(logged),
        factor=fmean(longer) if longer else 1.0,
    )
