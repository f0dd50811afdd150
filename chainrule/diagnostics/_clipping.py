"""The effect of clipping while a run was trained, from its metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True)
class Clipping:
    """How often and how hard gradients were clipped, counted from the norm before clipping that each step logs.

    Args:
        limit: θ, the largest norm that is left as it is; `None` where nothing was to be clipped.
        steps: weight updates that training made.
        logged_steps: those whose norm is known.
        logged_norms: the norms of their gradients before clipping.
        share: of the logged steps, the part that was longer than the limit.
        factor: their mean multiplier, θ/‖g‖; 1 where no gradient was clipped.
    """

    limit: float | None
    steps: int
    logged_steps: Sequence[int]
    logged_norms: Sequence[float]
    share: float
    factor: float

    def sentence(self) -> str:
        """The effect of clipping, and the steps that it is counted from."""
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
    r"""Sum up the records of metrics.jsonl; `None` where no step of training is among them.

    .. math:: g \leftarrow g \cdot \min(1, \theta / \lVert g \rVert)

    Args:
        metrics: the records of training; every step has its `gradient_norm`, before clipping.
        limit: θ, `clip_norm` of the run's training options.

    >>> records = [{"event": "step", "step": step, "gradient_norm": float(step)} for step in (1, 2, 4)]
    >>> print(clipping(records, 2.0).sentence())
    33.3% of the 3 steps of training that are logged (4 were made) had a gradient longer than the limit of 2 and were
    clipped, to 50% of their length on average; the median norm was 2, the largest 4.
    """
    known = [
        (int(record["step"]), float(record["gradient_norm"])) for record in metrics if record.get("event") == "step"
    ]
    if not known:
        return None
    longer = [] if limit is None else [limit / norm for _, norm in known if norm > limit]
    return Clipping(
        limit=limit,
        steps=max(step for step, _ in known),
        logged_steps=[step for step, _ in known],
        logged_norms=[norm for _, norm in known],
        share=len(longer) / len(known),
        factor=fmean(longer) if longer else 1.0,
    )
