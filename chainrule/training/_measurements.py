"""What a validation measured: the likelihood and the value of a task's metric."""

from dataclasses import dataclass

from chainrule.training._evaluate import Evaluation


@dataclass(frozen=True)
class MetricValue:
    """Value of a task's metric on validation data.

    Args:
        name: name of the metric: accuracy, f1, bleu.
        value: the value; higher is better.
        text: examples to show.
        margin: later weights are kept unless their value is lower than the highest by more than this.
    """

    name: str
    value: float
    text: str = ""
    margin: float = 0.0


@dataclass(frozen=True)
class Likelihood:
    """Likelihood of validation data, and of its part in common with the best validation so far."""

    evaluation: Evaluation  # likelihood of all scored batches
    common: Evaluation  # likelihood of the common part
    batches: int  # number of scored batches
    whole: bool  # true if these are all batches


@dataclass(frozen=True)
class MetricResult:
    """Value of a metric, and its value on the rows in common with the best validation so far."""

    metric: MetricValue  # value on all answered rows
    common: float  # value on the common rows
    rows: int  # number of answered rows
    whole: bool  # true if these are all rows
    # later weights are kept unless `common` is lower than the highest value by more than this: the metric's margin,
    # and for a part of the rows at least its standard error
    margin: float = 0.0
