"""The options of a text's Transformer, or of a model with a code, that the user left open: usual values and rules."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from chainrule._app.tasks.config import RunConfig
from chainrule._app.tasks.display import flag
from chainrule._app.tasks.ladder import record_settled, time_passes
from chainrule._app.tasks.task import Task
from chainrule._app.tasks.text.options import DROPOUTS
from chainrule._app.tasks.text.plan import usual_batch_size
from chainrule._app.tasks.text.preparing import batches_of, corpus_of, usual_order
from chainrule._app.tasks.text.task import TextTask
from chainrule.training._optimiser import forgetting_decay

if TYPE_CHECKING:
    from chainrule.training._optimiser import Kind

_LEARNING_RATE: dict["Kind", float] = {"adamw": 2e-3, "muon": 8e-3}
_WEIGHT_DECAY = 0.1  # of words, and by AdamW


def plan_blocks(run: TextTask, given: frozenset[str]) -> RunConfig:
    """The config of a new run, with its training decided, the size of a model of blocks, and its dropouts."""
    config, training, corpus = run.config, run.config.training, corpus_of(run)
    rows = training.batch_size or usual_batch_size(len(corpus.train), training.chunk_length)
    optimiser: Kind = training.optimiser or ("muon" if config.model in run.LADDERS else "adamw")
    learning_rate = training.learning_rate or _LEARNING_RATE[optimiser]
    decay = training.weight_decay
    if decay is None:
        narrow = optimiser == "muon" and corpus.level in ("char", "byte")
        steps = len(corpus.train) / (rows * training.chunk_length)  # of a pass
        decay = block_weight_decay(learning_rate, steps) if narrow else _WEIGHT_DECAY
    order = training.kneser_ney_order
    if order is None:
        order = usual_order(corpus.level) if config.model in run.LADDERS else 0
    training = replace(training, batch_size=rows, optimiser=optimiser, learning_rate=learning_rate, weight_decay=decay)
    network = replace(training, kneser_ney_order=0)  # which is timed
    config = Task.plan(TextTask(run.path, replace(config, training=network)), given)
    if config.model in run.LADDERS:
        config = with_dropout(TextTask(run.path, config), given)
    return replace(config, training=replace(training, kneser_ney_order=order))


def with_dropout(run: TextTask, given: frozenset[str]) -> RunConfig:
    """The config of a new run of blocks, with the dropouts that the user left open."""
    config = run.config
    left_open = [name for name in DROPOUTS if flag(name) not in given]
    if not left_open:
        return config
    batches, _ = batches_of(run, corpus_of(run), (0, 1))
    config, passes = time_passes(run, batches)
    config, usual = record_settled(config, left_open), block_dropouts(passes)
    return replace(config, options=replace(config.options, **{name: usual[name] for name in left_open}))


def block_dropouts(passes: float) -> dict[str, float]:
    """Dropouts of a Transformer's blocks and of its n-grams: none for two passes over the text, more for more.

    >>> block_dropouts(2)
    {'dropout': 0.0, 'ngram_dropout': 0.0}
    >>> block_dropouts(4), block_dropouts(100)["dropout"]
    ({'dropout': 0.1, 'ngram_dropout': 0.2}, 0.3)
    """
    dropout = min(0.3, max(0.0, 0.1 * math.log2(max(passes, 1.0) / 2)))
    return {"dropout": round(dropout, 2), "ngram_dropout": round(2 * dropout, 2)}


def block_weight_decay(learning_rate: float, steps_a_pass: float) -> float:
    """The decay of a Transformer's matrices: it forgets over half of a pass, where a recurrence does over one.

    >>> block_weight_decay(0.008, 485), block_weight_decay(0.008, 4e6)
    (0.52, 0.1)
    """
    return forgetting_decay(steps_a_pass / 2, learning_rate, least=0.1, most=2.0)
