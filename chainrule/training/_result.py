"""What training returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chainrule.training._evaluate import Evaluation


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run.

    Args:
        directory: where it is.
        step: weight updates done.
        elements: elements trained on.
        elapsed: wall-clock seconds, earlier sessions included, as far as they count: see `TrainingOptions.budget`.
        steps_now: weight updates since the run was started or resumed; 0 where the run was at its end already.
        best: the best validation, whose weights are in `model.safetensors`.
        best_value: value of the metric; None where the likelihood decided.
        best_rows: how many held-out rows the value is of; 0 where the likelihood decided.
        best_step: its step.
        last: the last validation.
        ended_by: "patience" where it stopped early; "length" where steps, epochs or budget were used up.
    """

    directory: Path
    step: int
    steps_now: int
    elements: int
    elapsed: float
    best: Evaluation
    best_step: int
    best_value: float | None
    best_rows: int
    last: Evaluation
    ended_by: Literal["length", "patience"]
