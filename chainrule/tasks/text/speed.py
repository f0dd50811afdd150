"""How fast this machine trains models of a text, from two of them."""

from collections.abc import Sequence

from chainrule.tasks.config import RunConfig
from chainrule.tasks.step_rate import seconds_to_measure, step_rate
from chainrule.tasks.text.plan import Shape, Speed
from chainrule.training.evaluate import Batch, count_elements


def measure_speed(config: RunConfig, shapes: Sequence[Shape], batch: Batch) -> Speed:
    """Time training steps of two shapes on a batch, within 2% of the budget of a run."""
    import torch

    from chainrule.models.recurrent_lm import RecurrentLM

    training = config.training
    seconds = seconds_to_measure(config.duration.budget or 0.0) / len(shapes)
    cost = []
    for shape in shapes:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = RecurrentLM(
                shape.vocabulary,
                cell=shape.cell,
                hidden_size=shape.hidden_size,
                num_layers=shape.num_layers,
                embedding_size=shape.embedding_size,
                adaptive_softmax=shape.adaptive,
            )
        cost.append(1 / (step_rate(model, batch, training, seconds) * count_elements(batch)))
    first, second = (shape.multiplies for shape in shapes)
    slope = max((cost[1] - cost[0]) / (second - first), 0.0)
    if slope == 0.0:  # the difference drowned in noise: charge everything to the multiply-adds
        return Speed(0.0, cost[1] / second)
    return Speed(max(cost[0] - slope * first, 0.0), slope)
