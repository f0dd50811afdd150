"""Training: the loop, options, optimisers, checkpoints and callbacks."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.training._batch import Batch as Batch
    from chainrule.training._batch import TrainingBatches as TrainingBatches
    from chainrule.training._batch import ValidationBatches as ValidationBatches
    from chainrule.training._batch import count_elements as count_elements
    from chainrule.training._callbacks import Callback as Callback
    from chainrule.training._checkpoint import load_weights as load_weights
    from chainrule.training._checkpoint import save_weights as save_weights
    from chainrule.training._computation import Computation as Computation
    from chainrule.training._dynamic_evaluation import DynamicEvaluator as DynamicEvaluator
    from chainrule.training._evaluate import Evaluation as Evaluation
    from chainrule.training._evaluate import Objective as Objective
    from chainrule.training._evaluate import TrainingResult as TrainingResult
    from chainrule.training._evaluate import bits as bits
    from chainrule.training._evaluate import evaluate as evaluate
    from chainrule.training._gradient_monitor import GradientProbe as GradientProbe
    from chainrule.training._gradient_monitor import NonFiniteLossError as NonFiniteLossError
    from chainrule.training._loop import train as train
    from chainrule.training._measurements import MetricValue as MetricValue
    from chainrule.training._metrics import read_metrics as read_metrics
    from chainrule.training._metrics import read_samples as read_samples
    from chainrule.training._optimiser import learning_rate as learning_rate
    from chainrule.training._optimiser import make_optimiser as make_optimiser
    from chainrule.training._options import TrainingOptions as TrainingOptions
    from chainrule.training._parallel import Interrupted as Interrupted
    from chainrule.training._parallel import Processes as Processes
    from chainrule.training._speed import steps_per_second as steps_per_second
    from chainrule.training._validation import Findings as Findings
    from chainrule.training._validation import Preview as Preview
    from chainrule.training._validation import ValidationMetric as ValidationMetric

__getattr__, __dir__ = attach(__name__)
