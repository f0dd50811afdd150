"""How a translator is trained where the user leaves it open: a rule of how much training a run has.

The size comes from a ladder, timed on this machine (`tasks.ladder`); these rules follow from that size and
from the steps and the passes over the pairs that a run is about to have.
"""

from dataclasses import replace
from math import log2
from typing import Any

from chainrule._app.tasks.config import RunConfig
from chainrule._app.tasks.display import flag
from chainrule._app.tasks.ladder import Ladder, expected_passes, record_settled

# A Transformer for little data is small, with narrow feed-forward networks (Wu et al. 2021).
LADDER = Ladder(
    "symbols", ({"model_size": 128, "feed_forward_size": 256}, {"model_size": 96, "feed_forward_size": 192}), passes=4
)
FEWEST_STEPS = 1000  # of training; below it batches are halved
WARM_UP_STEPS = 500
MOST_DROPOUT = {"seq2seq": 0.4, "transformer": 0.3}
LEARNING_RATE: dict[str, dict[str, float]] = {  # by model and optimiser; of a Transformer of 256 features
    "seq2seq": {"adamw": 0.002, "muon": 0.004},
    "transformer": {"adamw": 0.001, "muon": 0.003},
}


def with_usual_training(config: RunConfig, given: frozenset[str], steps_per_epoch: int) -> RunConfig:
    """The config of a new run with what the user left open settled."""
    options, training, transformer = config.options, config.training, config.model == "transformer"
    passes = expected_passes(config, steps_per_epoch)
    rate = LEARNING_RATE[config.model][training.optimiser]
    size: dict[str, Any] = {}
    trained: dict[str, Any] = {"learning_rate": rate}
    if transformer or passes is not None:
        size["dropout"] = usual_dropout(passes, MOST_DROPOUT[config.model])
    if transformer:
        steps, batch_size = None if passes is None else passes * steps_per_epoch, training.batch_size
        halved = config.duration.steps is None and "--batch-size" not in given
        if halved and steps is not None and steps < FEWEST_STEPS:
            batch_size, steps = max(1, batch_size // 2), 2 * steps
        size["feed_forward_size"] = 2 * options.model_size
        rate = usual_learning_rate(rate, options.model_size)
        trained = {"learning_rate": rate, "warmup": usual_warmup(steps), "batch_size": batch_size}
    size, trained = (
        {name: value for name, value in found.items() if flag(name) not in given} for found in (size, trained)
    )
    config = record_settled(config, [*size, *trained])
    return replace(config, options=replace(options, **size), training=replace(training, **trained))


def usual_learning_rate(rate: float, model_size: int) -> float:
    """Peak learning rate of a Transformer, as 1/D.

    >>> usual_learning_rate(0.001, 256), usual_learning_rate(0.001, 128)
    (0.001, 0.002)
    """
    return round(256 * rate / model_size, 5)


def usual_warmup(steps: float | None) -> float:
    """Share of a run for about `WARM_UP_STEPS` steps, a fifth at most.

    >>> usual_warmup(10_000), usual_warmup(600), usual_warmup(None)
    (0.05, 0.2, 0.1)
    """
    return 0.1 if steps is None else round(min(0.2, max(0.05, WARM_UP_STEPS / max(steps, 1))), 3)


def usual_dropout(passes: float | None, most: float) -> float:
    """0 up to two passes over the pairs, more for more; 0.2 where they are unknown.

    >>> usual_dropout(2, 0.3), usual_dropout(8, 0.3), usual_dropout(100, 0.3), usual_dropout(None, 0.3)
    (0.0, 0.2, 0.3, 0.2)
    """
    return 0.2 if passes is None else round(min(most, 0.1 * log2(max(passes / 2, 1.0))), 2)
