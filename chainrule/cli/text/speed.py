"""How fast this machine trains models of a text, from two small ones."""

from dataclasses import replace
from typing import cast

from chainrule.cli.text.plan import Speed, multiplies
from chainrule.runs.config import RunConfig
from chainrule.runs.text import ModelName, RecurrentOptions, TextTraining
from chainrule.training.batch import Batch, count_elements

PROBES = (128, 384)  # units


def measure_speed(config: RunConfig, vocabulary: int, batch: Batch) -> Speed:
    """Time training steps of the sizes of `PROBES`, with the cell, layers and batch of a run, for 2% of its budget."""
    import torch

    from chainrule.models.recurrent_lm import RecurrentLM
    from chainrule.training.candidates import SHARE, make_candidates, steps_per_second
    from chainrule.training.parallel import choose_device

    options, training = cast(RecurrentOptions, config.options), cast(TextTraining, config.training)
    device = choose_device(training.device)
    seconds = SHARE * (config.extent.budget or 0.0) / len(PROBES)
    work, cost = [], []
    for size in PROBES:
        probe = replace(options, embedding_size=options.embedding_size or 64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = RecurrentLM(
                vocabulary,
                cell=cast(ModelName, config.model),
                hidden_size=size,
                num_layers=options.num_layers or 1,
                embedding_size=probe.embedding_size,
            )
        way = make_candidates(model, device, precision=training.precision).default
        (rate,) = steps_per_second(model, batch, [way], min(seconds, 1.0), device)
        work.append(multiplies(config.model, probe, vocabulary, size, options.num_layers or 1))
        cost.append(1 / (rate * count_elements(batch)))
    slope = max((cost[1] - cost[0]) / (work[1] - work[0]), 0.0)
    if slope == 0.0:  # nothing was to be seen beside the noise: all of the cost is per multiply-add
        return Speed(0.0, cost[1] / work[1])
    return Speed(max(cost[0] - slope * work[0], 0.0), slope)
