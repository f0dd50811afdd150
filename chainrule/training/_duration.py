"""Position of a run, and how long it lasts: a number of steps or a number of seconds."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule._typed_json import field_types, read_fields
from chainrule.training._evaluate import Batch, Evaluation, ValidationBatches, count_elements
from chainrule.training._options import DEFAULT_BUDGET, TrainingOptions

if TYPE_CHECKING:
    from chainrule.training._validation import Likelihood, MetricResult


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
        highest_value: of the metric so far, which is `best_value` where it leaves no margin.
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
    highest_value: float | None = None
    best_rows: int = 0
    last: tuple[float, int] | None = None
    steps_far_over: int = 0
    vanished_looks: int = 0
    exploded_looks: int = 0

    def record(self, likelihood: "Likelihood", verdict: "MetricResult | None" = None) -> bool:
        """Take note of a validation at the present step; true where its weights are the best so far.

        Two validations are compared on what both read. One that read `WIDER` times as much as the best one or more
        replaces it: few rows never decide against many. Otherwise the higher value of the metric is better, where there
        is a metric; of equals, the higher likelihood. Where the verdict leaves a margin, the later one is better unless
        it is lower than the highest by more.
        """
        improved, behind = self._is_better(likelihood, verdict), 0.0
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
                self.highest_value = self.best_value + behind  # as if these rows had been read then
        return improved

    def _is_better(self, likelihood: "Likelihood", verdict: "MetricResult | None") -> bool:
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
        """Raises ValueError where the record is not one that `to_json` made."""
        try:
            position = cls(**read_fields(field_types(cls), record))
        except ValueError as error:
            raise ValueError(f"checkpoint: {error}: the file is damaged") from None
        for name, value in asdict(position).items():
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and not 0 <= number < 1 << 62:
                    raise ValueError(f"checkpoint: {name}: expected a count, got {value!r:.80}: the file is damaged")
                if isinstance(number, float) and not abs(number) < 1e300:  # multiplied it must stay finite
                    raise ValueError(f"checkpoint: {name}: expected less, got {value!r:.80}: the file is damaged")
        return position


class Duration(ABC):
    """When a run ends, how far along it is, when it validates and on how much.

    Attributes:
        stopped_early: whether the last validation read only as much as it had time for.
    """

    stopped_early = False

    @abstractmethod
    def finished(self, position: Position) -> bool:
        """Whether no further step is to be taken."""

    @abstractmethod
    def check_reaches(self, position: Position) -> None:
        """Raise ValueError where a run to be resumed is already beyond its end."""

    @abstractmethod
    def progress(self, position: Position) -> float:
        """The fraction of the run that will be done after the next step, for the learning-rate schedule."""

    @abstractmethod
    def validation_due(self, position: Position) -> bool:
        """Whether to validate before the next step; the last validation, after the last step, comes in any case."""

    @abstractmethod
    def start_up(self, seconds: float) -> float:
        """How many of the seconds before the first step of a run count as spent."""

    @abstractmethod
    def allowance(self, position: Position, *, last: bool) -> float:
        """The seconds that the coming validation may take, its saving left out."""

    @abstractmethod
    def validation_part(self, batches: Iterable[Batch], position: Position, seconds: float) -> Iterator[Batch]:
        """The first of the batches: no fewer than the last validation read, else as many as the `seconds` allow."""

    @abstractmethod
    def end(self, position: Position) -> None:
        """Record that the run has ended."""

    @abstractmethod
    def step_took(self, seconds: float) -> None:
        """Learn how long a step takes."""


class Steps(Duration):
    """A number of steps: nothing here reads a clock, so that the same run is the same bits every time.

    Where the steps were chosen for a budget, and take longer than was thought, the run ends with it.

    Args:
        total: steps.
        validate_every: steps between validations.
        most_seconds: the budget; None where there is none.
    """

    def __init__(self, total: int, validate_every: int, most_seconds: float | None = None):
        self.total = total
        self.validate_every = validate_every
        self.most_seconds = math.inf if most_seconds is None else most_seconds

    def finished(self, position: Position) -> bool:
        if position.step >= self.total:
            return True
        return position.step > 0 and position.elapsed + (position.validation_seconds or 0.0) >= self.most_seconds

    def check_reaches(self, position: Position) -> None:
        if position.step > self.total:
            raise ValueError(
                f"steps: expected at least the {position.step} that the run has done, got {self.total}: give more"
            )

    def progress(self, position: Position) -> float:
        return (position.step + 1) / self.total

    def validation_due(self, position: Position) -> bool:
        return position.step % self.validate_every == 0

    def start_up(self, seconds: float) -> float:
        return min(seconds, START_UP_SHARE * self.most_seconds)

    def allowance(self, position: Position, *, last: bool) -> float:
        return math.inf

    def validation_part(self, batches: Iterable[Batch], position: Position, seconds: float) -> Iterator[Batch]:
        trained_between = self.validate_every * position.elements // position.step
        left = max(trained_between, LEAST_VALIDATION)
        for read, batch in enumerate(batches, 1):
            yield batch
            left -= count_elements(batch)
            if left <= 0 and read >= position.validation_batches:
                return

    def end(self, position: Position) -> None:
        """Do nothing: the number of steps shows the end."""

    def step_took(self, seconds: float) -> None:
        """Do nothing: the duration is a number of steps, not a time."""


def start_up_note(seconds: float, counted: float) -> str:
    """A line for a start-up of which only `counted` seconds are of the budget."""
    return (
        f"starting up took {seconds:.1f} s, of which a fifth of the budget counts: "
        f"the run ends {seconds - counted:.1f} s after its budget"
    )


class Seconds(Duration):
    """A wall-clock budget for everything: start-up, steps, validation, saving.

    Most of it is for steps. Start-up counts up to a share of the budget: where it takes longer, the run ends later. A
    validation may take a share of the time since the one before it, the first included; where that is too little to
    read everything, the next one waits twice as long and reads more. Time for the last validation and save is held
    back, and the schedule spans the time before it: the progress is that of steps. A step is taken if more than half
    of it fits, and the last one is told that it is the last.

    Args:
        budget: seconds.
        validate_every: steps between validations, where the user said so.
        valid_batches: the held-out data, to estimate the cost of the first validation from the size of its first batch.
    """

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
            raise ValueError(
                f"budget: expected more than the {used:.0f} seconds that the run has taken, "
                f"got {self.budget:g}: give more"
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
        began, self.stopped_early = monotonic(), False
        for read, batch in enumerate(batches):
            spent = monotonic() - began
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
        """Seconds that the first batch alone is expected to take: a step is a forward and a backward pass."""
        if self._first_batch is None:
            self._first_batch = next((count_elements(batch) for batch in self._valid_batches()), 0)
        return self._first_batch * position.training_seconds / position.elements / 3


START_UP_SHARE = 0.2  # of a budget that start-up may use up
VALIDATIONS = 10  # over a run, where the user does not say how often
VALIDATION_SHARE = 0.05  # of the time since the validation before may go into one
LAST_VALIDATION_SHARE = 0.05  # of a budget may go into the last one: a larger held-out part is read up to there
WIDER = 2  # times as much data: such a validation replaces the best one instead of being compared with it
FIRST_PROGRESS = 1e-3  # of the first step, while it is not known how long a step takes
LEAST_STEPS = 5  # between validations
LEAST_VALIDATION = 2**18  # elements that a validation of a counted run reads, even where it trains on fewer in between


def make_duration(options: TrainingOptions, steps_per_epoch: int, valid_batches: ValidationBatches) -> Duration:
    """The duration that `steps`, `epochs` or `budget` name."""
    if options.steps is None and options.epochs is None:
        return Seconds(options.budget or DEFAULT_BUDGET, options.validate_every, valid_batches)
    total = options.steps if options.steps is not None else math.ceil((options.epochs or 0.0) * steps_per_epoch)
    spaced = min(steps_per_epoch, math.ceil(total / VALIDATIONS))
    return Steps(total, options.validate_every or spaced, options.most_seconds)
