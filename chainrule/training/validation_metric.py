"""Metrics that decide which weights are kept where the likelihood does not, and the findings of a validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.base import TrainableModel
from chainrule.training.evaluate import Evaluation

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MetricValue:
    """The value of a model on held-out data, by the metric of its task.

    Args:
        name: of the measure, as figures name it: accuracy, f1, bleu.
        value: higher is better.
        text: an example or two to show with it.
    """

    name: str
    value: float
    text: str = ""


@dataclass(frozen=True)
class ValidationMetric:
    """Answers held-out rows with a model and compares the answers with the truth.

    Both are apart so that a run with a budget can answer as many rows as it has time for, and compare two models on
    the rows that both answered.

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
class Verdict:
    """The value of a metric, and its value on the rows that the best validation so far had.

    Args:
        metric: of all rows that were answered.
        common: the value on the rows that the best validation had too.
        rows: how many were answered.
        whole: whether these are all.
    """

    metric: MetricValue
    common: float
    rows: int
    whole: bool
