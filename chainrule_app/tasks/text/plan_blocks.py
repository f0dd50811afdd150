"""Resolve the options of a text model of blocks, such as a Transformer, that the user left open."""

import math
from dataclasses import replace

from chainrule_app.tasks.config import Planned, forgetting_decay
from chainrule_app.tasks.size_schedule import record_resolved, time_passes
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.text.options import DROPOUTS
from chainrule_app.tasks.text.plan import Kind, default_batch_size
from chainrule_app.tasks.text.task import ORDERS, TextTask

_LEARNING_RATE: dict[Kind, float] = {"adamw": 2e-3, "muon": 8e-3}
_LORA_LEARNING_RATE = 8e-3  # thin changes need larger steps (benchmarks/LOG.md)
_WEIGHT_DECAY = 0.1  # of words, and by AdamW


def plan_blocks(run: TextTask, given: frozenset[str]) -> Planned:
    """Resolve the training options, size and dropout of a new run with blocks."""
    config, training, corpus = run.config, run.config.training, run.corpus()
    rows = training.batch_size or default_batch_size(len(corpus.train), training.chunk_length)
    of_model: Kind = "muon" if config.model in run.SIZE_SCHEDULES and training.lora_rank is None else "adamw"
    optimiser = training.optimiser or of_model
    of_kind = _LEARNING_RATE[optimiser] if training.lora_rank is None else _LORA_LEARNING_RATE
    learning_rate = training.learning_rate or of_kind
    decay = training.weight_decay
    if decay is None:
        narrow = optimiser == "muon" and corpus.level in ("char", "byte")
        steps = len(corpus.train) / (rows * training.chunk_length)  # of a pass
        decay = block_weight_decay(learning_rate, steps) if narrow else _WEIGHT_DECAY
    order = training.kneser_ney_order
    if order is None:
        order = ORDERS[corpus.level] if config.model in run.SIZE_SCHEDULES else 0
    training = replace(training, batch_size=rows, optimiser=optimiser, learning_rate=learning_rate, weight_decay=decay)
    training = replace(training, kneser_ney_order=order)
    planned = Task.plan(type(run)(run.path, replace(config, training=training)), given)
    if config.model not in run.SIZE_SCHEDULES:
        return planned
    return with_dropout(type(run)(run.path, planned.config), planned, given)


def with_dropout(run: TextTask, planned: Planned, given: frozenset[str]) -> Planned:
    """Resolve the dropout of a new run with blocks."""
    left_open = [name for name in DROPOUTS if name not in given]
    if not left_open:
        return planned
    (config, timed), passes = time_passes(run, planned, run.batches((0, 1))[0])
    config, dropouts = record_resolved(config, left_open), block_dropouts(passes)
    options = replace(config.options, **{name: dropouts[name] for name in left_open})
    return Planned(replace(config, options=options), timed)


def block_dropouts(passes: float) -> dict[str, float]:
    """Return dropout of blocks and n-grams: none up to two passes over the text, more for more passes.

    >>> block_dropouts(2)
    {'dropout': 0.0, 'ngram_dropout': 0.0}
    >>> block_dropouts(4), block_dropouts(100)["dropout"]
    ({'dropout': 0.1, 'ngram_dropout': 0.2}, 0.3)
    """
    dropout = min(0.3, max(0.0, 0.1 * math.log2(max(passes, 1.0) / 2)))
    return {"dropout": round(dropout, 2), "ngram_dropout": round(2 * dropout, 2)}


def block_weight_decay(learning_rate: float, steps_a_pass: float) -> float:
    """Return the decay of a Transformer's matrices: it forgets over half a pass, a recurrence over one.

    >>> block_weight_decay(0.008, 485), block_weight_decay(0.008, 4e6)
    (0.52, 0.1)
    """
    return forgetting_decay(steps_a_pass / 2, learning_rate, least=0.1, most=2.0)
