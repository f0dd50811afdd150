"""Position of a run: its counters."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from chainrule.data.atomic import field_types, read_fields
from chainrule.training.evaluate import Evaluation

if TYPE_CHECKING:
    from chainrule.training.validation import Likelihood, MetricResult


@dataclass
class Position:
    """Counters of a run: with the weights, the moments and the carried state, all that resuming it needs.

    The data cursor is `step`, the learning rate is a function of `step` or `elapsed`, and all randomness of a step is
    made from (seed, step, process): there is no other state.

    Args:
        step: weight updates done.
        elements: elements trained on.
        elapsed: wall-clock seconds that count, earlier sessions included; the start-up of a resumed run is free.
        training_seconds: those of them that steps took.
        ended_budget: the budget that the run came to the end of; None while it trains.
        validated: step of the last validation.
        validated_at: seconds elapsed when it ended.
        validated_all: whether it read and compared all that there is.
        validation_batches: how many batches it read.
        measured_rows: how many rows were compared.
        validation_seconds: how long it took, its saving included; None before the first.
        validation_spacing: seconds between the end of the one before and its beginning.
        sample_seconds: the least time for which it is worth to draw a sample.
        saving_seconds: how long the last checkpoint took.
        stale: validations in a row that brought no improvement.
        best_step: step of the best validation.
        best: its result as (nats, elements).
        best_batches: how many batches it read.
        best_value: value of the metric; None where the likelihood decides.
        best_rows: how many rows were compared.
        last: result of the last validation, as `best`.
        steps_far_over, vanished_looks, exploded_looks: counts of `GradientAlarms`.
    """

    step: int = 0
    elements: int = 0
    elapsed: float = 0.0
    training_seconds: float = 0.0
    ended_budget: float | None = None
    validated: int = 0
    validated_at: float = 0.0
    validated_all: bool = False
    validation_batches: int = 0
    measured_rows: int = 0
    validation_seconds: float | None = None
    validation_spacing: float = 0.0
    sample_seconds: float = 0.0
    saving_seconds: float = 0.0
    stale: int = 0
    best_step: int = 0
    best: tuple[float, int] | None = None
    best_batches: int = 0
    best_value: float | None = None
    best_rows: int = 0
    last: tuple[float, int] | None = None
    steps_far_over: int = 0
    vanished_looks: int = 0
    exploded_looks: int = 0

    def record(self, likelihood: "Likelihood", verdict: "MetricResult | None" = None) -> bool:
        """Take note of a validation at the present step; true where it is the best so far.

        The higher value of the metric is the better one, where there is a metric; of equals, the higher likelihood.
        Both are compared on what the best validation so far has read, where this one read more.
        """
        common = likelihood.common.nats_per_element
        improved = self.best is None or common < Evaluation(*self.best).nats_per_element
        if verdict is not None and self.best_value is not None and verdict.common != self.best_value:
            improved = verdict.common > self.best_value
        self.last = (likelihood.evaluation.nats, likelihood.evaluation.elements)
        self.validated, self.validation_batches = self.step, likelihood.batches
        self.measured_rows = 0 if verdict is None else verdict.rows
        self.validated_all = likelihood.whole and (verdict is None or verdict.whole)
        self.stale = 0 if improved else self.stale + 1
        if improved:
            self.best, self.best_step, self.best_batches = self.last, self.step, self.validation_batches
            self.best_value = None if verdict is None else verdict.metric.value
            self.best_rows = self.measured_rows
        return improved

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> "Position":
        """Raises ValueError where the record is not one that `to_json` made."""
        try:
            position = cls(**read_fields(field_types(cls), record))
        except ValueError as error:
            raise ValueError(f"checkpoint: {error}: the file is damaged") from None
        for name, value in asdict(position).items():
            for count in value if isinstance(value, tuple) else (value,):
                if isinstance(count, int) and not 0 <= count < 1 << 62:
                    raise ValueError(f"checkpoint: {name}: expected a count, got {value!r:.80}: the file is damaged")
        return position
