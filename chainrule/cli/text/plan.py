"""The options of a text's model that the user left open: a rule of the data, the budget and the speed of this machine.

The rule (docs/training.md shows the runs it was fitted on):

- The speed of two small models, measured here, gives the seconds that a symbol costs at any size, and so the symbols D
  that a model of a given size reads in the budget. A run of steps or epochs says D itself, on any machine.
- The size is that of `SIZES` with the lowest predicted loss, a power law of weights P and symbols
  (Hoffmann et al. 2022), in which the r-th reading of the same text counts for less (Muennighoff et al. 2023):

      nats = A P^-a + B D'^-b,    D' = N + N R (1 - exp(-(D/N - 1) / R))

  and no size is taken that has more than `WEIGHTS_A_SYMBOL` weights a symbol of the text.
- Dropout grows with the passes over the text.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chainrule.runs.config import Extent
from chainrule.runs.text import RecurrentOptions, TextTraining

if TYPE_CHECKING:
    from chainrule.data.corpus import Corpus

SIZES = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1536)
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
WEIGHTS_A_SYMBOL = 2.0
TRAINING_SHARE = 0.9  # of a budget goes into training steps
REPEATS = 15.0  # R
NGRAM_VOCABULARY = 512  # wider vocabularies have too many pairs of symbols for a table


@dataclass(frozen=True)
class PowerLaw:
    """Nats a symbol as a function of weights and symbols read."""

    A: float
    a: float
    B: float
    b: float

    def __call__(self, weights: float, symbols: float) -> float:
        return self.A * weights**-self.a + self.B * symbols**-self.b


NARROW = PowerLaw(A=60.0, a=0.45, B=420.0, b=0.45)  # characters and bytes
WIDE = PowerLaw(A=60.0, a=0.35, B=420.0, b=0.35)  # words and subwords


@dataclass(frozen=True)
class Speed:
    """Seconds that a symbol costs in training, a + b W of the W multiply-adds of its forward pass."""

    base: float
    per_multiply: float

    def seconds(self, multiplies: float) -> float:
        return self.base + self.per_multiply * multiplies


@dataclass(frozen=True)
class Plan:
    """Options with nothing left open, and what they follow from.

    Args:
        options: of the model.
        learning_rate: peak.
        symbols: that training will read, about.
        rate: symbols a second here; None where the run has a number of steps or epochs.
    """

    options: RecurrentOptions
    learning_rate: float
    symbols: float
    rate: float | None


def plan_text(
    cell: str,
    options: RecurrentOptions,
    training: TextTraining,
    extent: Extent,
    corpus: "Corpus",
    measure: Callable[[], Speed],
) -> Plan:
    """Settle what is None in the options of a new run.

    Args:
        cell: the recurrent layer.
        options, training, extent: as the user gave them.
        corpus: the prepared text.
        measure: times training steps on this machine; not called where a number of steps or epochs is given.
    """
    from chainrule.layers.cutoffs import default_cutoffs

    vocabulary, text = len(corpus.vocabulary), len(corpus.train)
    wide = corpus.level in ("word", "bpe")
    law = WIDE if wide else NARROW
    speed = measure() if extent.budget is not None else None

    def symbols_read(size: int, layers: int) -> float:
        if speed is not None and extent.budget is not None:
            return TRAINING_SHARE * extent.budget / speed.seconds(multiplies(cell, options, vocabulary, size, layers))
        if extent.steps is not None:
            return float(extent.steps * training.batch_size * training.chunk_length)
        return (extent.epochs or 1.0) * text

    def predicted(size: int, layers: int) -> float:
        passes = symbols_read(size, layers) / text
        worth = text * passes if passes <= 1 else text * (1 + REPEATS * (1 - math.exp((1 - passes) / REPEATS)))
        return law(multiplies(cell, options, vocabulary, size, layers), worth)

    tied = options.tie_weights if options.tie_weights is not None else wide and options.embedding_size is None
    adaptive = options.adaptive_softmax
    if adaptive is None:
        adaptive = corpus.level == "word" and default_cutoffs(vocabulary) is not None
    layers = options.num_layers or 1
    size = options.hidden_size
    if size is None:
        within = [
            size for size in SIZES if multiplies(cell, options, vocabulary, size, layers) <= WEIGHTS_A_SYMBOL * text
        ]
        size = min(within or SIZES[:1], key=lambda size: predicted(size, layers))
    symbols = symbols_read(size, layers)
    passes = symbols / text
    dropout = options.dropout if options.dropout is not None else usual_dropout(passes)
    embedding = options.embedding_size or (size if wide or tied else min(64, size))
    settled = replace(
        options,
        hidden_size=size,
        num_layers=layers,
        embedding_size=embedding,
        tie_weights=tied,
        adaptive_softmax=adaptive,
        ngram_order=options.ngram_order or (3 if vocabulary <= NGRAM_VOCABULARY and not tied else 1),
        dropout=dropout,
        embedding_dropout=options.embedding_dropout if options.embedding_dropout is not None else dropout * wide,
    )
    rate = None if speed is None else 1 / speed.seconds(multiplies(cell, settled, vocabulary, size, layers))
    return Plan(settled, training.learning_rate or usual_learning_rate(size), symbols, rate)


def multiplies(cell: str, options: RecurrentOptions, vocabulary: int, size: int, layers: int) -> float:
    """Multiply-adds of a forward pass, a symbol: the weights of all matrices that it is multiplied with."""
    embedding = options.embedding_size or min(64, size)
    gates = GATES[cell]
    return float(gates * size * (embedding + size + (layers - 1) * 2 * size) + size * vocabulary)


def usual_dropout(passes: float) -> float:
    """None for a first reading, more the oftener the text is read."""
    return round(min(0.5, max(0.0, 0.1 * math.log2(max(passes, 1.0)))), 2)


def usual_learning_rate(size: int) -> float:
    """Peak learning rate for a number of units."""
    return 0.01 * min(1.0, (256 / size) ** 0.5)
