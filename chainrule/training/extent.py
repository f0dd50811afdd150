"""How long a run lasts: a number of steps or a number of seconds."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from statistics import median
from time import monotonic

from chainrule.training.batch import Batch, count_elements
from chainrule.training.options import DEFAULT_BUDGET, TrainingOptions
from chainrule.training.position import Position


class Extent(ABC):
    """When a run ends, how far along it is, when it validates and on how much."""

    @abstractmethod
    def finished(self, position: Position) -> bool:
        """Whether no further step is to be taken."""

    @abstractmethod
    def check_reaches(self, position: Position) -> None:
        """Raise ValueError where a run to be resumed is already beyond its end."""

    @abstractmethod
    def progress(self, position: Position) -> float:
        """The fraction of the run that will be done when the step about to be taken is: what the schedule reads."""

    @abstractmethod
    def validation_due(self, position: Position) -> bool:
        """Whether to validate before the next step; the last validation, after the last step, comes in any case."""

    @abstractmethod
    def validation_part(self, batches: Iterable[Batch], position: Position) -> Iterator[Batch]:
        """The batches that a validation reads: the same ones every time, and no more than the run can afford."""

    @abstractmethod
    def step_took(self, seconds: float) -> None:
        """Learn how long a step takes."""


class Steps(Extent):
    """A number of steps: nothing here reads a clock, so that the same run is the same bits every time."""

    def __init__(self, total: int, validate_every: int):
        self.total = total
        self.validate_every = validate_every

    def finished(self, position: Position) -> bool:
        return position.step >= self.total

    def check_reaches(self, position: Position) -> None:
        if position.step > self.total:
            raise ValueError(
                f"steps: expected at least the {position.step} that the run has done, got {self.total}: give more"
            )

    def progress(self, position: Position) -> float:
        return (position.step + 1) / self.total

    def validation_due(self, position: Position) -> bool:
        return position.step % self.validate_every == 0

    def validation_part(self, batches: Iterable[Batch], position: Position) -> Iterator[Batch]:
        trained_between = self.validate_every * position.elements // position.step
        left = max(trained_between, LEAST_VALIDATION)
        for batch in batches:
            yield batch
            left -= count_elements(batch)
            if left <= 0:
                return

    def step_took(self, seconds: float) -> None:
        """Steps are counted, however long they take."""


class Seconds(Extent):
    """A wall-clock budget for everything: steps, validation, saving.

    The last validation and save are planned for: what the last one took is held back, and the schedule spans the time
    before it. A step is taken if more than half of it fits, and the last one is told that it is the last.
    """

    def __init__(self, budget: float, validate_every: int | None):
        self.budget = budget
        self.validate_every = validate_every
        self.step_seconds: deque[float] = deque(maxlen=9)

    def finished(self, position: Position) -> bool:
        return position.step > 0 and self._left(position) < self._step() / 2

    def check_reaches(self, position: Position) -> None:
        if position.elapsed > 1.05 * self.budget:
            raise ValueError(
                f"budget: expected more than the {position.elapsed:.0f} seconds that the run has taken, "
                f"got {self.budget:g}: give more"
            )

    def progress(self, position: Position) -> float:
        left = self._left(position)
        if left < 1.5 * self._step():
            return 1.0
        return (position.elapsed + self._step()) / (position.elapsed + left)

    def validation_due(self, position: Position) -> bool:
        if self.validate_every is not None:
            return position.step % self.validate_every == 0
        spacing = self.budget / VALIDATIONS
        if position.validation_seconds is not None:
            spacing = max(spacing, position.validation_seconds / VALIDATION_SHARE)
        return position.elapsed - position.validated_at > spacing and self._left(position) > spacing / 2

    def validation_part(self, batches: Iterable[Batch], position: Position) -> Iterator[Batch]:
        began, read = monotonic(), 0
        for batch in batches:
            yield batch
            read += 1
            if read == position.validation_batches:
                return
            if position.validation_batches is None and monotonic() - began > LAST_VALIDATION_SHARE * self.budget:
                break
        if position.validation_batches is None:
            position.validation_batches = read

    def step_took(self, seconds: float) -> None:
        self.step_seconds.append(seconds)

    def _step(self) -> float:
        return median(self.step_seconds) if self.step_seconds else 0.0

    def _left(self, position: Position) -> float:
        reserve = position.validation_seconds
        if reserve is None:
            reserve = LAST_VALIDATION_SHARE * self.budget
        return self.budget - reserve - position.elapsed


VALIDATIONS = 10  # over a run, where the user does not say how often
VALIDATION_SHARE = 0.05  # of a budget may go into validations before the last one
LAST_VALIDATION_SHARE = 0.04  # of a budget may go into one validation: a larger held-out part is read up to there
LEAST_VALIDATION = 2**18  # elements that a validation of a counted run reads, even where it trains on fewer in between


def make_extent(options: TrainingOptions, steps_per_epoch: int) -> Extent:
    """What `steps`, `epochs` or `budget` ask for."""
    if options.steps is None and options.epochs is None:
        return Seconds(options.budget or DEFAULT_BUDGET, options.validate_every)
    total = options.steps if options.steps is not None else math.ceil((options.epochs or 0.0) * steps_per_epoch)
    spaced = min(steps_per_epoch, math.ceil(total / VALIDATIONS))
    return Steps(total, options.validate_every or spaced)
