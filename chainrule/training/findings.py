"""The findings of a validation, each with what makes it comparable to those of the best one before."""

from dataclasses import dataclass

from chainrule.training.evaluate import Evaluation
from chainrule.training.validation_metric import MetricValue


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
