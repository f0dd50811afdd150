"""Training: the loop, options, optimisers, checkpoints and callbacks."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.training._callbacks import Callback
    from chainrule.training._checkpoint import load_weights, save_weights
    from chainrule.training._dynamic_evaluation import DynamicEvaluator, dynamic_evaluation
    from chainrule.training._evaluate import (
        Batch,
        Evaluation,
        Objective,
        TrainingBatches,
        TrainingResult,
        ValidationBatches,
        bits,
        evaluate,
    )
    from chainrule.training._gradient_monitor import NonFiniteLossError
    from chainrule.training._loop import train
    from chainrule.training._optimiser import learning_rate, make_optimiser
    from chainrule.training._options import TrainingOptions
    from chainrule.training._parallel import Interrupted, process_shard
    from chainrule.training._validation import MetricValue, ValidationMetric

__all__ = [
    "Batch",
    "Callback",
    "DynamicEvaluator",
    "Evaluation",
    "Interrupted",
    "MetricValue",
    "NonFiniteLossError",
    "Objective",
    "TrainingBatches",
    "TrainingOptions",
    "TrainingResult",
    "ValidationBatches",
    "ValidationMetric",
    "bits",
    "dynamic_evaluation",
    "evaluate",
    "learning_rate",
    "load_weights",
    "make_optimiser",
    "process_shard",
    "save_weights",
    "train",
]

__getattr__, __dir__ = attach(__name__)
