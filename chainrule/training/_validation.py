"""Validation within a time limit: likelihood, the task's metric, extra metrics and a sample."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import stdev
from time import monotonic
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from chainrule._base import TrainableModel
from chainrule.training._batch import Batch, ValidationBatches
from chainrule.training._duration import Duration, Position
from chainrule.training._evaluate import Evaluation, evaluations
from chainrule.training._measurements import Likelihood, MetricResult, MetricValue
from chainrule.training._parallel import Interrupts, Processes

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Preview:
    """Sample of a model at a validation."""

    text: str  # text for the terminal
    png: bytes = b""  # picture, for models of images and music


OnValidation = Callable[[TrainableModel, int, float], str | Preview | None]
FEW_ROWS = 8  # rows answered first, to measure the time per row
LIKELIHOOD_SHARE = 0.4  # share of a validation's time for the likelihood, if there is a metric
PARTS = 10  # parts of the rows from which the standard error of a partial validation is estimated
BOTH_SHARE = 0.75  # share of a validation's time for likelihood and metric; the rest is for the sample


@dataclass(frozen=True)
class ValidationMetric:
    """Metric of a task, in two steps: a model's answers to validation rows, and their comparison with the truth.

    Separate steps let a run with a budget answer the rows that it has time for, and compare two models on common rows.

    Args:
        rows: number of validation rows.
        answer: function of the model (in evaluation mode, without gradients) and row indices that returns answers.
        compare: function of row indices, answers and the step that returns the value of the metric on these rows.
        selects: whether the metric selects the weights; otherwise it is shown, and the likelihood selects them.
    """

    rows: int
    answer: Callable[[TrainableModel, Rows], Sequence[Any]]
    compare: Callable[[Rows, Sequence[Any], int], MetricValue]
    selects: bool = True


@dataclass(frozen=True)
class Findings:
    """Extra metrics of a model at a validation."""

    figures: dict[str, float]  # metrics by name
    text: str = ""  # text to show
    warning: str = ""  # warning with a remedy, or empty


Observe = Callable[[TrainableModel], Findings]


@runtime_checkable
class Calibrated(Protocol):
    """Protocol of models with parameters fitted to validation data, such as the share of a `CalibratedMixture`."""

    def calibrate(self, batches: Iterable[Batch]) -> None:
        """Fit these parameters to the first batches."""


class Validation:
    """Validation of a model, on the same data first every time, and on more if there is time."""

    def __init__(
        self,
        model: TrainableModel,
        batches: ValidationBatches,
        metric: ValidationMetric | None,
        observe: Observe | None,
        on_validation: OnValidation | None,
        duration: Duration,
        interrupts: Interrupts,
        group: Processes,
    ):
        self._model, self._batches, self._metric, self._observe = model, batches, metric, observe
        self._on_validation, self._duration, self._interrupts = on_validation, duration, interrupts
        self._group = group

    @property
    def is_metric_shown_only(self) -> bool:
        """True if the likelihood selects the weights although there is a metric."""
        return self._metric is not None and not self._metric.selects

    def likelihood(self, position: Position, seconds: float) -> Likelihood | None:
        """Evaluate in the first process while the others wait; None after an interruption."""
        result = self._likelihood(position, seconds) if self._group.first else None
        numbers = [0.0] * 6
        if result is not None:
            numbers = [result.evaluation.nats, result.evaluation.elements, result.common.nats, result.common.elements]
            numbers += [result.batches, result.whole]
        nats, elements, common, common_elements, batches, whole = self._group.agree(numbers)
        if not batches:
            return None
        both = Evaluation(nats, int(elements)), Evaluation(common, int(common_elements))
        return Likelihood(*both, int(batches), bool(whole))

    def verdict(self, position: Position, seconds: float) -> MetricResult | None:
        """Compute the metric in the first process while the others wait; None without one."""
        if self._metric is None:
            return None
        verdict = MetricResult(MetricValue("", 0.0), 0.0, 0, False)
        if self._group.first:
            verdict = self._verdict(position, seconds)
        numbers = [verdict.metric.value, verdict.common, verdict.rows, verdict.whole, verdict.margin]
        value, common, rows, whole, margin = self._group.agree(numbers)
        return MetricResult(replace(verdict.metric, value=value), common, int(rows), bool(whole), margin)

    def _likelihood(self, position: Position, seconds: float) -> Likelihood | None:
        """Calibrate the model and score it in its share of the `seconds`; None after an interruption."""
        began = monotonic()
        if self._metric is not None:
            seconds *= LIKELIHOOD_SHARE
        elif self._on_validation is not None:
            seconds *= BOTH_SHARE
        try:
            if isinstance(self._model, Calibrated):
                self._model.calibrate(self._interruptible())
                seconds -= monotonic() - began
            part = self._duration.validation_part(self._interruptible(), position, max(seconds, 0.0))
            read = evaluations(self._model, part)
        except _BrokenOffError:
            return None
        best = min(position.best_batches or len(read), len(read))
        return Likelihood(read[-1], read[best - 1], len(read), not self._duration.stopped_early)

    def _verdict(self, position: Position, seconds: float) -> MetricResult:
        """Answer and compare at least the rows of the last validation, and more until the `seconds` are used up."""
        assert self._metric is not None
        if self._on_validation is not None:
            seconds *= BOTH_SHARE
        order = np.random.default_rng(0).permutation(self._metric.rows)  # files are often sorted
        answers: list[Any] = []
        began = monotonic()
        wanted = len(order) if math.isinf(seconds) else min(max(position.measured_rows, FEW_ROWS), len(order))
        with self._evaluating():
            while wanted > len(answers):
                answers += self._metric.answer(self._model, order[len(answers) : wanted])
                if len(answers) == len(order):
                    break
                spent = monotonic() - began
                more = 3 * len(answers) if spent <= 0 else int((seconds - spent) / spent * len(answers))
                wanted = min(len(answers) + min(more, 3 * len(answers)), len(order))
                if 4 * more < len(answers) and wanted < len(order):
                    break  # too few rows for another batch
            measured = self._metric.compare(order[: len(answers)], answers, position.step)
            best = min(position.best_rows or len(answers), len(answers))
            common, whole = measured, len(answers) == len(order)
            if best < len(answers):
                common = self._metric.compare(order[:best], answers[:best], position.step)
            error = (
                0.0 if whole and best == len(answers) else self._standard_error(order[:best], answers, position.step)
            )
        return MetricResult(measured, common.value, len(answers), whole, max(common.margin, error))

    def _standard_error(self, rows: Rows, answers: Sequence[Any], step: int) -> float:
        """Estimate the metric's standard error from ten parts of the rows, also for F1 and BLEU (batch means)."""
        assert self._metric is not None
        bounds = np.linspace(0, len(rows), min(PARTS, len(rows)) + 1).astype(int).tolist()
        values = [
            self._metric.compare(rows[begin:end], answers[begin:end], step).value for begin, end in pairwise(bounds)
        ]
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0

    def findings(self) -> Findings | None:
        """Compute extra metrics, or None; independent of the time."""
        if self._observe is None:
            return None
        with self._evaluating():
            return self._observe(self._model)

    def sample(self, position: Position, seconds: float) -> Preview | None:
        """Draw the sample, if drawing the last one took no more than the available time."""
        if self._on_validation is None or position.sample_seconds > max(seconds, 0.0):
            return None
        began = monotonic()
        with self._evaluating():
            text = self._on_validation(self._model, position.step, seconds)
        position.sample_seconds = 0.5 * (monotonic() - began)  # half: retry a sample that took up to twice its time
        return text if isinstance(text, Preview | None) else Preview(text)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        self._model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self._model.train()

    def _interruptible(self) -> Iterator[Batch]:
        for batch in self._batches():
            if self._interrupts.requested:
                raise _BrokenOffError
            yield batch


class _BrokenOffError(Exception):
    """Signal of an interruption during a validation, which a resumed run repeats."""
