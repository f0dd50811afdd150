"""Where a run stands."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from chainrule.training.evaluate import Evaluation


@dataclass
class Position:
    """Counters of a run: with the weights, the moments and the carried state, all that resuming it needs.

    The data cursor is `step`, the learning rate is a function of `step` or `elapsed`, and all randomness of a step is
    made from (seed, step, process): there is no other state.

    Args:
        step: weight updates done.
        elements: elements trained on.
        elapsed: wall-clock seconds spent, earlier sittings included.
        validated: step of the last validation.
        validated_at: seconds elapsed when it ended.
        stale: validations in a row that brought no improvement.
        best_step: step of the best validation.
        best: its result as (nats, elements).
        best_value: its judgement; None where the likelihood decides.
        last: result of the last validation, as `best`.
        validation_batches: how many batches a validation reads; None while that is not known.
        validation_seconds: how long the last validation took, its saving included.
        steps_far_over, vanished_looks, exploded_looks: what `GradientAlarms` has counted.
    """

    step: int = 0
    elements: int = 0
    elapsed: float = 0.0
    validated: int = 0
    validated_at: float = 0.0
    stale: int = 0
    best_step: int = 0
    best: tuple[float, int] | None = None
    best_value: float | None = None
    last: tuple[float, int] | None = None
    validation_batches: int | None = None
    validation_seconds: float | None = None
    steps_far_over: int = 0
    vanished_looks: int = 0
    exploded_looks: int = 0

    def record(self, evaluation: Evaluation, value: float | None = None) -> bool:
        """Take note of a validation at the present step; true where it is the best so far.

        The higher `value` is the better one, where it is given; of equals, the higher likelihood.
        """
        likelier = self.best is None or evaluation.nats_per_element < Evaluation(*self.best).nats_per_element
        if value is None or value == self.best_value:
            improved = likelier
        else:
            improved = self.best_value is None or value > self.best_value
        self.last = (evaluation.nats, evaluation.elements)
        self.validated = self.step
        self.stale = 0 if improved else self.stale + 1
        if improved:
            self.best, self.best_step, self.best_value = self.last, self.step, value
        return improved

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> "Position":
        """Raises ValueError where the record is not one that `to_json` made."""
        names = {field.name for field in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            raise ValueError(f"checkpoint: expected the counters {', '.join(sorted(names))}: the file is damaged")
        for name, value in record.items():
            if not _fits(name, value):
                raise ValueError(f"checkpoint: expected a figure of the run for {name}, got {value!r:.80}: damaged")
        pairs = {name: tuple(record[name]) for name in _PAIRS if record[name] is not None}
        return cls(**(record | pairs))


_PAIRS = ("best", "last")
_SECONDS = ("elapsed", "validated_at")
_OPTIONAL = (*_PAIRS, "best_value", "validation_batches", "validation_seconds")


def _fits(name: str, value: Any) -> bool:
    if value is None:
        return name in _OPTIONAL
    if name in _PAIRS:
        return isinstance(value, list) and len(value) == 2 and _is_number(value[0]) and _is_count(value[1])
    if name in _SECONDS or name in ("best_value", "validation_seconds"):
        return _is_number(value)
    return _is_count(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
