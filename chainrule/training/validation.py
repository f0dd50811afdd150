"""One validation: the likelihood of held-out data, the value of answers and a sample, in the time that there is."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import numpy as np
import torch

from chainrule.base import TrainableModel
from chainrule.training.duration import Duration
from chainrule.training.evaluate import Batch, ValidationBatches, evaluations
from chainrule.training.guard import Interrupts
from chainrule.training.position import Position
from chainrule.training.validation_metric import Findings, Likelihood, ValidationMetric, Verdict

OnValidation = Callable[[TrainableModel, int, float], str | None]
Observe = Callable[[TrainableModel], Findings]
FEW_ROWS = 8  # answered first, to learn how long a row takes
LIKELIHOOD_SHARE = 0.4  # of a validation's time, where there is a metric
BOTH_SHARE = 0.75  # of a validation's time for the likelihood and the metric; the rest is for the sample


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
        """Whether there is a metric besides the likelihood."""
        return self._metric is not None

    def likelihood(self, position: Position, seconds: float) -> Likelihood | None:
        """In about its share of the `seconds` of the validation; None where an interruption broke it off."""
        if self._metric is not None:
            seconds *= LIKELIHOOD_SHARE
        elif self._on_validation is not None:
            seconds *= BOTH_SHARE
        part = self._duration.validation_part(self._interruptible(), position, seconds)
        try:
            read = evaluations(self._model, part)
        except _BrokenOffError:
            return None
        best = min(position.best_batches or len(read), len(read))
        return Likelihood(read[-1], read[best - 1], len(read), not self._duration.stopped_early)

    def verdict(self, position: Position, seconds: float) -> Verdict:
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
            common = measured
            if best < len(answers):
                common = self._metric.compare(order[:best], answers[:best], position.step)
        return Verdict(measured, common.value, len(answers), len(answers) == len(order))

    def findings(self) -> Findings | None:
        """Further figures of the model; None where there are none. The same at each repetition, whatever the time."""
        if self._observe is None:
            return None
        with self._evaluating():
            return self._observe(self._model)

    def sample(self, position: Position, seconds: float) -> str | None:
        """The text to show, where drawing the last one took no more time than there is now."""
        if self._on_validation is None or position.sample_seconds > max(seconds, 0.0):
            return None
        began = monotonic()
        with self._evaluating():
            text = self._on_validation(self._model, position.step, seconds)
        position.sample_seconds = 0.5 * (monotonic() - began)  # one that took up to twice its time is tried again
        return text

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
