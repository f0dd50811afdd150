"""One validation: the likelihood of held-out data, a metric and a sample, in the time that there is."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev
from time import monotonic
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from chainrule._base import TrainableModel
from chainrule.training._duration import Duration, Position
from chainrule.training._evaluate import Batch, Evaluation, ValidationBatches, evaluations
from chainrule.training._parallel import Interrupts

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Preview:
    """What a model can do, drawn at a validation.

    Args:
        text: shown on the terminal.
        png: the same as a picture, of images.
    """

    text: str
    png: bytes = b""


OnValidation = Callable[[TrainableModel, int, float], str | Preview | None]
FEW_ROWS = 8  # answered first, to learn how long a row takes
LIKELIHOOD_SHARE = 0.4  # of a validation's time, where there is a metric
PARTS = 10  # of the rows of a partial validation, from which its standard error is estimated
BOTH_SHARE = 0.75  # of a validation's time for the likelihood and the metric; the rest is for the sample


@dataclass(frozen=True)
class MetricValue:
    """The value of a model on held-out data, by the metric of its task.

    Args:
        name: of the measure, as figures name it: accuracy, f1, bleu.
        value: higher is better.
        text: an example or two to show with it.
        margin: later weights are kept where their value is lower than the highest by no more than this.
    """

    name: str
    value: float
    text: str = ""
    margin: float = 0.0


@dataclass(frozen=True)
class ValidationMetric:
    """Compute the answers of a model to held-out rows, and compare them with the truth.

    The two steps are separate. A run with a budget can then answer as many rows as it has time for, and compare two
    models on the rows that both answered.

    Args:
        rows: how many held-out rows there are.
        answer: given the model, in evaluation mode and without gradients, and the numbers of some rows, their answers
            in the same order.
        compare: given the numbers of rows, their answers and the step, the value of the metric on them together.
    """

    rows: int
    answer: Callable[[TrainableModel, Rows], Sequence[Any]]
    compare: Callable[[Rows, Sequence[Any], int], MetricValue]


@dataclass(frozen=True)
class Findings:
    """Figures of a model at a validation, besides its likelihood and metric.

    Args:
        figures: by name, recorded with the validation.
        text: shown with it.
        warning: a fault that the figures show, with its remedy; empty where they show none.
    """

    figures: dict[str, float]
    text: str = ""
    warning: str = ""


Observe = Callable[[TrainableModel], Findings]


@runtime_checkable
class Calibrated(Protocol):
    """A model with numbers that held-out data decide, such as the share of a `CalibratedMixture`."""

    def calibrate(self, batches: Iterable[Batch]) -> None:
        """Fit these numbers to the first batches."""


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of held-out data, and of as much of it as the best validation so far had read.

    Args:
        evaluation: of all that was read.
        common: of what the best validation read too.
        batches: how many were read.
        whole: whether that is all the held-out data that the run validates on.
    """

    evaluation: Evaluation
    common: Evaluation
    batches: int
    whole: bool


@dataclass(frozen=True)
class MetricResult:
    """The value of a metric, and its value on the rows that the best validation so far had.

    Args:
        metric: of all rows that were answered.
        common: the value on the rows that the best validation had too.
        rows: how many were answered.
        whole: whether these are all.
        margin: later weights are kept where `common` is lower than the highest value by no more than this: the margin
            of the metric, and on a part of the rows at least its standard error.
    """

    metric: MetricValue
    common: float
    rows: int
    whole: bool
    margin: float = 0.0


class Validation:
    """Measures a model on held-out data, the same data first every time, and more of it where there is time.

    Args:
        model: that is trained.
        batches: the held-out data.
        metric: of the task; None where the likelihood is that.
        observe: finds further figures.
        on_validation: makes the text that is shown.
        duration: how much of the data a validation reads.
        interrupts: break it off.
    """

    def __init__(
        self,
        model: TrainableModel,
        batches: ValidationBatches,
        metric: ValidationMetric | None,
        observe: Observe | None,
        on_validation: OnValidation | None,
        duration: Duration,
        interrupts: Interrupts,
    ):
        self._model, self._batches, self._metric, self._observe = model, batches, metric, observe
        self._on_validation, self._duration, self._interrupts = on_validation, duration, interrupts

    @property
    def has_metric(self) -> bool:
        """Whether there is a metric in addition to the likelihood."""
        return self._metric is not None

    def likelihood(self, position: Position, seconds: float) -> Likelihood | None:
        """In about its share of the `seconds` of the validation; None where an interruption broke it off.

        A model that is `Calibrated` is so first.
        """
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

    def verdict(self, position: Position, seconds: float) -> MetricResult:
        """Compare the answers to as many rows as the `seconds` allow, no fewer than the last validation did."""
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
                    break  # too few for a batch of their own
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
        """The standard error of the metric on some rows, from its values on ten parts of them (batch means).

        It holds for any metric, F1 and BLEU too, whose value is no mean over rows.
        """
        assert self._metric is not None
        bounds = np.linspace(0, len(rows), min(PARTS, len(rows)) + 1).astype(int).tolist()
        values = [
            self._metric.compare(rows[begin:end], answers[begin:end], step).value for begin, end in pairwise(bounds)
        ]
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0

    def findings(self) -> Findings | None:
        """Further figures of the model; None without any. The same at each repetition, whatever the time."""
        if self._observe is None:
            return None
        with self._evaluating():
            return self._observe(self._model)

    def sample(self, position: Position, seconds: float) -> Preview | None:
        """The sample to show, where drawing the last one took no more time than there is now."""
        if self._on_validation is None or position.sample_seconds > max(seconds, 0.0):
            return None
        began = monotonic()
        with self._evaluating():
            text = self._on_validation(self._model, position.step, seconds)
        position.sample_seconds = 0.5 * (monotonic() - began)  # one that took up to twice its time is tried again
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
    """An interruption came during a validation: it is repeated when the run is resumed."""
