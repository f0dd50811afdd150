"""How fast this machine trains models of a text, from two of them."""

from collections.abc import Sequence
from typing import cast

from chainrule.cli.text.plan import Shape, Speed
from chainrule.runs.config import RunConfig
from chainrule.runs.text import TextTraining
from chainrule.training.batch import Batch, count_elements


def measure_speed(config: RunConfig, shapes: Sequence[Shape], batch: Batch) -> Speed:
    """Time training steps of two shapes on a batch, within 2% of the budget of a run.

    Products are float32 unless the user asked for others: where bfloat16 is faster, the run gets a little further.
    """
    import torch

    from chainrule.layers import default_cutoffs
    from chainrule.models.recurrent_lm import RecurrentLM
    from chainrule.training.candidates import MOST_SECONDS, SHARE, make_candidates, steps_per_second
    from chainrule.training.computation import Computation
    from chainrule.training.parallel import choose_device

    training = cast(TextTraining, config.training)
    device = choose_device(training.device)
    seconds = min(MOST_SECONDS, SHARE * (config.extent.budget or 0.0)) / len(shapes)
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
                cutoffs=default_cutoffs(shape.vocabulary) if shape.adaptive else None,
            )
        candidates = make_candidates(model, device, threads=training.threads, precision=training.precision)
        way = Computation(candidates.threads[0], candidates.precision[-1])
        (rate,) = steps_per_second(model, batch, [way], seconds, device)
        cost.append(1 / (rate * count_elements(batch)))
    first, second = (shape.multiplies for shape in shapes)
    slope = max((cost[1] - cost[0]) / (second - first), 0.0)
    if slope == 0.0:  # the difference drowned in noise: charge everything to the multiply-adds
        return Speed(0.0, cost[1] / second)
    return Speed(max(cost[0] - slope * first, 0.0), slope)
