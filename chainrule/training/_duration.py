"""Position of a run, and its duration in steps or seconds."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from time import monotonic
from typing import Any

from chainrule.option_error import OptionError
from chainrule.training._batch import Batch, ValidationBatches, count_elements
from chainrule.training._evaluate import Evaluation
from chainrule.training._measurements import Likelihood, MetricResult
from chainrule.training._options import DEFAULT_BUDGET, TrainingOptions
from chainrule.typed_json import field_types, read_fields


@dataclass
class Position:
    """Counters of a run. With the weights, moments and carried state they are all that resuming needs.

    The data cursor is `step`, the learning rate is a function of `step` or `elapsed`, and all randomness of a step is
    derived from (seed, step, process): there is no other state.
    """

    step: int = 0  # number of weight updates
    elements: int = 0  # number of training elements
    # wall-clock seconds that count, including earlier sessions but not the start-up of a resumed run
    elapsed: float = 0.0
    training_seconds: float = 0.0  # seconds spent in training steps
    ended_budget: float | None = None  # budget that the run has used up; None while it trains
    validated: int = 0  # step of the last validation
    validated_at: float = 0.0  # elapsed seconds at its end
    validated_all: bool = False  # true if it covered all validation data
    validation_batches: int = 0  # number of batches it scored
    measured_rows: int = 0  # number of rows it compared
    validation_seconds: float | None = None  # its duration including saving; None before the first validation
    validation_spacing: float = 0.0  # seconds between the end of the previous validation and its start
    sample_seconds: float = 0.0  # minimum time for drawing a sample
    saving_seconds: float = 0.0  # duration of the last checkpoint
    stale: int = 0  # number of consecutive validations without improvement
    best_step: int = 0  # step of the best validation
    best: tuple[float, int] | None = None  # its result as (nats, elements)
    best_batches: int = 0  # number of batches it scored
    best_value: float | None = None  # its metric; None if the likelihood decides
    highest_value: float | None = None  # highest metric so far, which is `best_value` without a margin
    best_rows: int = 0  # number of rows it compared
    # result of the last validation, as `best`. steps_far_over, vanished_looks, exploded_looks: counters of
    # `GradientAlarms`
    last: tuple[float, int] | None = None
    steps_far_over: int = 0
    vanished_looks: int = 0
    exploded_looks: int = 0

    def record(
        self, likelihood: Likelihood, verdict: MetricResult | None = None, *, by_likelihood: bool = False
    ) -> bool:
        """Record a validation at the current step; return true if its weights are the best so far.

        Two validations are compared on their common data. A validation on at least `WIDER` times as much data as the
        best one replaces it. Otherwise the higher metric is better, then the higher likelihood. If the verdict has a
        margin, the later validation is better unless it is lower than the highest by more than the margin. If the
        metric is only shown, the higher likelihood is better.
        """
        improved, behind = self._is_better(likelihood, None if by_likelihood else verdict), 0.0
        if verdict is not None and self.highest_value is not None and verdict.rows < WIDER * self.best_rows:
            behind = max(self.highest_value - verdict.common, 0.0)
        self.last = (likelihood.evaluation.nats, likelihood.evaluation.elements)
        self.validated, self.validation_batches = self.step, likelihood.batches
        self.measured_rows = 0 if verdict is None else verdict.rows
        self.validated_all = likelihood.whole and (verdict is None or verdict.whole)
        self.stale = 0 if improved else self.stale + 1
        if improved:
            self.best, self.best_step, self.best_batches = self.last, self.step, self.validation_batches
            self.best_rows = self.measured_rows
            if verdict is not None:
                self.best_value = verdict.metric.value
                self.highest_value = self.best_value + behind  # the earlier maximum, corrected to these rows
        return improved

    def _is_better(self, likelihood: Likelihood, verdict: MetricResult | None) -> bool:
        if self.best is None:
            return True
        if verdict is not None and self.highest_value is not None:
            if verdict.rows >= WIDER * self.best_rows or verdict.rows < self.best_rows:
                return verdict.rows > self.best_rows
            if verdict.margin or verdict.common != self.highest_value:
                return verdict.common >= self.highest_value - verdict.margin
        if likelihood.batches >= WIDER * self.best_batches or likelihood.batches < self.best_batches:
            return likelihood.batches > self.best_batches
        return likelihood.common.nats_per_element < Evaluation(*self.best).nats_per_element

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> "Position":
        """Read a record of `to_json`; raise ValueError for any other."""
        try:
            position = cls(**read_fields(field_types(cls), record))
        except ValueError as error:
            raise ValueError(f"checkpoint: {error}: the file is damaged") from None
        for name, value in asdict(position).items():
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and not 0 <= number < 1 << 62:
                    raise ValueError(f"checkpoint: {name}: expected a count, got {value!r:.80}: the file is damaged")
                if isinstance(number, float) and not abs(number) < 1e300:  # products of it must stay finite
                    raise ValueError(f"checkpoint: {name}: expected less, got {value!r:.80}: the file is damaged")
        return position


class Steps:
    """Duration in steps, or at most in `most_seconds`; it reads no clock, so that repeated runs have equal bits."""

    stopped_early = False  # whether the last validation ran out of time before the end of the data

    def __init__(self, total: int, validate_every: int, most_seconds: float | None = None):
        self.total = total
        self.validate_every = validate_every
        self.most_seconds = math.inf if most_seconds is None else most_seconds

    def finished(self, position: Position) -> bool:
        """Return true if the run takes no further step."""
        if position.step >= self.total:
            return True
        return position.step > 0 and position.elapsed + (position.validation_seconds or 0.0) >= self.most_seconds

    def check_reaches(self, position: Position) -> None:
        """Raise ValueError if a resumed run is already beyond its end."""
        if position.step > self.total:
            raise OptionError(
                "steps", f"expected at least the {position.step} that the run has done, got {self.total}", "raise it"
            )

    def progress(self, position: Position) -> float:
        """Return the fraction of the run done after the next step, for the learning-rate schedule."""
        return (position.step + 1) / self.total

    def validation_due(self, position: Position) -> bool:
        """Return true to validate before the next step; a run always validates after its last step."""
        return position.step % self.validate_every == 0

    def start_up(self, seconds: float) -> float:
        """Return the part of the seconds before the first step that counts."""
        return min(seconds, START_UP_SHARE * self.most_seconds)

    def allowance(self, position: Position, *, last: bool) -> float:
        """Return the seconds that the next validation may take, without saving."""
        return math.inf

    def validation_part(self, batches: Iterable[Batch], position: Position, seconds: float) -> Iterator[Batch]:
        """Yield the first batches: at least as far as the last validation, then until the `seconds` are used up."""
        trained_between = self.validate_every * position.elements // position.step
        left = max(trained_between, LEAST_VALIDATION)
        for read, batch in enumerate(batches, 1):
            yield batch
            left -= count_elements(batch)
            if left <= 0 and read >= position.validation_batches:
                return

    def end(self, position: Position) -> None:
        """Record that the run has ended, which the number of steps shows."""

    def step_took(self, seconds: float) -> None:
        """Record the duration of a step, which is of no use here."""


def start_up_note(seconds: float, counted: float) -> str:
    """Explain that only `counted` seconds of the start-up count."""
    return (
        f"start-up took {seconds:.1f} s, but only a fifth of the budget counts: "
        f"the run ends {seconds - counted:.1f} s after its budget"
    )


class Seconds:
    """Wall-clock budget for start-up, steps, validation and saving.

    Most of the budget is for steps. Start-up counts up to a share of the budget; if it takes longer, the run ends
    later. A validation may take a share of the time since the previous one. If this is too short for all validation
    data, the next validation waits twice as long and scores more. The last validation and save have a reserve; the
    schedule spans the time before it. A step is taken if more than half of it fits, and the last step has progress 1.
    """

    stopped_early = False

    def __init__(self, budget: float, validate_every: int | None, valid_batches: ValidationBatches):
        self.budget = budget
        self.validate_every = validate_every
        self.step_seconds: deque[float] = deque(maxlen=9)
        self._valid_batches = valid_batches
        self._first_batch: int | None = None

    def finished(self, position: Position) -> bool:
        if position.ended_budget is not None and self.budget <= position.ended_budget:
            return True
        return position.step > 0 and self._left(position) < self._step(position) / 2

    def check_reaches(self, position: Position) -> None:
        used = position.elapsed if position.ended_budget is None else position.ended_budget
        if 1.05 * self.budget < used:
            raise OptionError(
                "budget",
                f"expected more than the {used:.0f} seconds that the run has taken, got {self.budget:g}",
                "raise it",
            )

    def progress(self, position: Position) -> float:
        left, step = self._left(position), self._step(position)
        if left < 1.5 * step:
            return 1.0
        return max(position.training_seconds + step, FIRST_PROGRESS * left) / (position.training_seconds + left)

    def start_up(self, seconds: float) -> float:
        return min(seconds, START_UP_SHARE * self.budget)

    def validation_due(self, position: Position) -> bool:
        if self.validate_every is not None:
            return position.step % self.validate_every == 0
        if position.step - position.validated < LEAST_STEPS:
            return False
        spacing = self.budget / VALIDATIONS
        since = position.elapsed - position.validated_at
        if since <= spacing:
            return False
        if position.validation_seconds is None:
            spacing = max(spacing, self._first_cost(position) / VALIDATION_SHARE)
        else:
            spacing = max(spacing, position.validation_seconds / VALIDATION_SHARE)
            if not position.validated_all:
                spacing = max(spacing, 2 * position.validation_spacing)
        return since > spacing and self._left(position) > spacing / 2

    def allowance(self, position: Position, *, last: bool) -> float:
        if last:
            return max(
                self.budget - position.elapsed - position.saving_seconds, LAST_VALIDATION_SHARE / 2 * self.budget
            )
        if self.validate_every is not None:
            return LAST_VALIDATION_SHARE * self.budget
        share = VALIDATION_SHARE * (position.elapsed - position.validated_at)
        return max(share - position.saving_seconds, share / 2)

    def validation_part(self, batches: Iterable[Batch], position: Position, seconds: float) -> Iterator[Batch]:
        start, self.stopped_early = monotonic(), False
        for read, batch in enumerate(batches):
            spent = monotonic() - start
            if read >= max(position.validation_batches, 1) and spent * (read + 1) > seconds * read:
                self.stopped_early = True
                return
            yield batch

    def end(self, position: Position) -> None:
        position.ended_budget = self.budget

    def step_took(self, seconds: float) -> None:
        self.step_seconds.append(seconds)

    def _step(self, position: Position) -> float:
        if self.step_seconds:
            return median(self.step_seconds)
        return position.training_seconds / position.step if position.step else 0.0

    def _left(self, position: Position) -> float:
        reserve = LAST_VALIDATION_SHARE * self.budget
        if position.validation_seconds is not None:
            whole = position.validated_all
            reserve = position.validation_seconds if whole else max(reserve, position.validation_seconds)
        return self.budget - reserve - position.elapsed

    def _first_cost(self, position: Position) -> float:
        """Estimate the seconds of the first batch as a third of a step (forward pass without the backward pass)."""
        if self._first_batch is None:
            self._first_batch = next((count_elements(batch) for batch in self._valid_batches()), 0)
        return self._first_batch * position.training_seconds / position.elements / 3


START_UP_SHARE = 0.2  # maximum share of a budget for start-up
VALIDATIONS = 10  # default number of validations in a run; one a pass, if that is more often, up to
MOST_VALIDATIONS = 100
VALIDATION_SHARE = 0.05  # maximum share of the time since the previous validation
LAST_VALIDATION_SHARE = 0.05  # maximum share of a budget for the last validation
WIDER = 2  # factor of data from which a validation replaces the best one without comparison
FIRST_PROGRESS = 1e-3  # progress of the first step, before the duration of a step is known
LEAST_STEPS = 5  # minimum number of steps between validations
LEAST_VALIDATION = 2**18  # minimum number of elements in a validation of a run of steps


Duration = Steps | Seconds


def make_duration(options: TrainingOptions, steps_per_epoch: int, valid_batches: ValidationBatches) -> Duration:
    """Build the duration for `steps`, `epochs` or `budget`."""
    if options.steps is None and options.epochs is None:
        return Seconds(options.budget or DEFAULT_BUDGET, options.validate_every, valid_batches)
    total = options.steps if options.steps is not None else math.ceil((options.epochs or 0.0) * steps_per_epoch)
    spaced = max(min(steps_per_epoch, math.ceil(total / VALIDATIONS)), math.ceil(total / MOST_VALIDATIONS))
    return Steps(total, options.validate_every or spaced, options.most_seconds)
