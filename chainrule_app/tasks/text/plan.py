"""Resolve the options of a text model that the user left open, from the data, the budget and the measured speed.

The models here are recurrent; `plan_blocks` is about Transformers. Counts of n-grams are for both.

- A timed network gives the seconds per symbol at any size, by a law of its multiply-adds, and so the symbols D that a
  model reads in the budget. The size that the plan then takes is timed too, until it takes one that was timed: the run
  trains that network. A run of steps or epochs defines D itself, on any machine.
- The size is the one in `SIZES` with the lowest predicted loss, a power law of weights P and symbols
  (Hoffmann et al. 2022), in which the r-th reading of the same text counts for less (Muennighoff et al. 2023):

      nats = A P^-a + B D'^-b,    D' = N + N R (1 - exp(-(D/N - 1) / R))

  among the sizes with at most `WEIGHTS_A_SYMBOL` weights per symbol of the text.
- The mean of K models is considered if each can read the text `PASSES_OF_MEMBERS` times. Its loss is the loss of one
  model minus G (1 - 1/K), the law of the mean of K equally large, correlated errors, plus `COST_OF_MEMBER` each.
- Weight decay forgets over about one pass over the text (Wang and Aitchison 2024), which is worth more than dropout;
  dropout is added where the text is read often, more for a model that has many weights for its text.

The constants were fitted on runs over tiny Shakespeare of 256 to 512 units (benchmarks/LOG.md); words use the same.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chainrule_app.printing import progress_bars
from chainrule_app.tasks.config import Duration, Planned, Settled, Timed, forgetting_decay
from chainrule_app.tasks.run_directory import NGRAMS
from chainrule_app.tasks.size_schedule import TRAINING_SHARE
from chainrule_app.tasks.text.options import DROPOUTS, PLANNED, TextTraining
from chainrule_app.tasks.text.task import ORDERS, TextTask, ngrams_record

if TYPE_CHECKING:
    from chainrule.data import Tokens
    from chainrule.models import RecurrentLM
    from chainrule_app.readers.corpus import Corpus
    from chainrule_app.readers.store import Ids

Kind = Literal["adamw", "muon"]
SIZES = (64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1536)
FIRST_TIMED = 128  # units of the network that is timed first, where the text allows such a size
TIMINGS = 2  # that share the time to measure
OVERHEAD = 5e4  # multiply-adds that take as long as the rest of a step, as far as one timing tells
WORTH_TIMING = 0.005  # nats a symbol that another size must gain on those that were timed
ANY_DROPOUT = 0.1  # of a network that is timed: its cost hardly depends on the probability
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
WEIGHTS_A_SYMBOL = 3.0
REPEATS = 5.0  # R
MEMBERS = (1, 2, 3, 4)
GAIN_OF_MEMBERS = 0.041  # G, nats a symbol
COST_OF_MEMBER = 0.002  # nats a symbol, the least gain of a further member: it makes the model slower to use
PASSES_OF_MEMBERS = 6.0  # of each, at least, as planned: two with 4.4, which became 3, were worse than one model
NGRAM_VOCABULARY = 512  # wider vocabularies have too many pairs of symbols for a table


def predicted_nats(weights: float, symbols: float) -> float:
    """Return A P^-a + B D^-b, the nats of a symbol."""
    return 4.5 * weights**-0.3 + 152.0 * symbols**-0.5


@dataclass(frozen=True)
class Speed:
    """Training seconds per symbol, a + b W for W multiply-adds of the forward pass."""

    base: float
    per_multiply: float

    def seconds(self, multiplies: float) -> float:
        return self.base + self.per_multiply * multiplies

    @classmethod
    def through(cls, timings: list[tuple[float, float]]) -> "Speed":
        """Return the line through the last two timings, multiply-adds and seconds; through one with the overhead."""
        multiplies, seconds = timings[-1]
        if len(timings) == 1:
            slope = seconds / (multiplies + OVERHEAD)
            return cls(slope * OVERHEAD, slope)
        others, seconds_before = timings[-2]
        slope = (seconds - seconds_before) / (multiplies - others)
        base = seconds - slope * multiplies
        # Noise may hide the slope or the base.
        return cls(base, slope) if slope > 0 and base >= 0 else cls(0.0, seconds / multiplies)


@dataclass(frozen=True)
class Shape:
    """Sizes that decide the cost of a model."""

    cell: str
    vocabulary: int
    hidden_size: int
    num_layers: int
    embedding_size: int
    adaptive: bool  # adaptive softmax
    tied: bool = False
    ngram_order: int = 1

    @property
    def multiplies(self) -> float:
        """Count the multiply-adds of a forward pass per symbol."""
        size = self.hidden_size
        recurrent = GATES[self.cell] * size * (self.embedding_size + size + (self.num_layers - 1) * 2 * size)
        return float(recurrent + size * self._scores())

    def _scores(self) -> float:
        from chainrule.layers import AdaptiveSoftmax

        cutoffs = AdaptiveSoftmax.default_cutoffs(self.vocabulary) if self.adaptive else None
        if cutoffs is None:
            return self.vocabulary
        first, second = cutoffs  # three quarters of the text, 15% and 10%, at a full, a quarter and a 16th of the width
        return first + 0.15 * (second - first) / 4 + 0.1 * (self.vocabulary - second) / 16


@dataclass(frozen=True)
class Plan:
    """Resolved options, and what they follow from."""

    options: Any
    training: TextTraining
    symbols: float | None  # read by each member, about; None for an unmeasured budget
    rate: float | None  # symbols per second; None if not measured


def plan_recurrence(run: TextTask) -> Planned:
    """Resolve the options of a new recurrent run."""
    config, corpus, new = run.config, run.corpus(), partial(type(run), run.path)
    timings: list[tuple[Any, Timed]] = []  # of the networks with these options

    def measure(options: Any, training: TextTraining) -> float:
        sized = new(replace(config, options=options, training=training))
        timings.append((options, sized.timed(sized.batches((0, 1))[0], 1 / TIMINGS)))
        return 1 / timings[-1][1].elements_per_second

    plan = plan_text(config.model, config.options, config.training, config.duration, corpus, measure)
    left_open = [name for name, value in asdict(config.options).items() if value is None]
    left_open += [name for name in PLANNED if getattr(config.training, name) is None]
    passes = None if plan.symbols is None else plan.symbols / len(corpus.train)
    settled = Settled(left_open, passes, plan.rate)
    config = replace(config, options=plan.options, training=plan.training, settled=settled)
    dropouts = {name: getattr(plan.options, name) for name in (*DROPOUTS, "embedding_dropout")}
    for options, timed in timings:
        if replace(options, **dropouts) == plan.options:
            drop(timed.network, **dropouts)
            return Planned(config, replace(timed, identity=new(config).network_identity))
    return Planned(config)


def drop(network: "RecurrentLM", dropout: float, embedding_dropout: float, ngram_dropout: float) -> None:
    """Change the dropout of a network."""
    network.dropout = network.recurrent.dropout = dropout
    network.embedding_dropout = embedding_dropout
    if network.ngrams is not None:
        network.ngrams.dropout = ngram_dropout


def plan_text(
    cell: str,
    options: Any,
    training: TextTraining,
    duration: Duration,
    corpus: "Corpus",
    measure: Callable[[Any, TextTraining], float],
) -> Plan:
    """Resolve the options of a new run.

    `measure` returns the seconds per symbol of a network with resolved options. It is called if budget and size or
    dropout require it.
    """
    text, wide = len(corpus.train), corpus.level in ("word", "bpe")
    optimiser: Kind = training.optimiser or "muon"
    batch_size = training.batch_size or default_batch_size(text, training.chunk_length)
    order = training.kneser_ney_order
    training = replace(
        training,
        batch_size=batch_size,
        optimiser=optimiser,
        kneser_ney_order=ORDERS[corpus.level] if order is None else order,
    )

    def shape(size: int) -> Shape:
        return shape_of(cell, options, len(corpus.vocabulary), corpus.level, size)

    def resolved(size: int, members: int, default: float) -> Any:
        """Resolve the options of a model; `default` is the dropout if it is open."""
        chosen, dropout = shape(size), default if options.dropout is None else options.dropout
        return replace(
            options,
            hidden_size=size,
            num_layers=chosen.num_layers,
            embedding_size=chosen.embedding_size,
            tie_weights=chosen.tied,
            adaptive_softmax=chosen.adaptive,
            num_members=members,
            ngram_order=chosen.ngram_order,
            ngram_dropout=options.ngram_dropout if options.ngram_dropout is not None else dropout,
            dropout=dropout,
            embedding_dropout=options.embedding_dropout if options.embedding_dropout is not None else dropout * wide,
        )

    budget, size = duration.budget, options.hidden_size
    within = [size for size in SIZES if shape(size).multiplies <= WEIGHTS_A_SYMBOL * text] or SIZES[:1]
    sizes = within if size is None else [size]
    timed = budget is not None and None in (size, options.dropout)
    several = MEMBERS if timed and not wide else MEMBERS[:1]  # steps and epochs are of one model
    candidates = list(product(sizes, several if options.num_members is None else [options.num_members]))
    seconds: dict[int, float] = {}  # a symbol takes a network of the sizes that were timed
    speed = Speed(0.0, 0.0)

    def symbols_read(size: int, members: int) -> float:
        if timed and budget is not None:
            duration_of_one = seconds.get(size) or speed.seconds(shape(size).multiplies)
            return TRAINING_SHARE * budget / (members * duration_of_one)
        if duration.steps is not None:
            return float(duration.steps * batch_size * training.chunk_length)
        return (duration.epochs or 1.0) * text

    def predicted(candidate: tuple[int, int]) -> float:
        size, members = candidate
        passes = symbols_read(size, members) / text
        if members > 1 and options.num_members is None and passes < PASSES_OF_MEMBERS:
            return math.inf
        worth = text * passes if passes <= 1 else text * (1 + REPEATS * (1 - math.exp((1 - passes) / REPEATS)))
        gain = (GAIN_OF_MEMBERS / members - COST_OF_MEMBER) * (members - 1)
        return predicted_nats(shape(size).multiplies, worth) - gain

    def best() -> tuple[int, int]:
        best = min(candidates, key=predicted)
        known = min((other for other in candidates if other[0] in seconds), key=predicted, default=best)
        return best if predicted(known) > predicted(best) + WORTH_TIMING else known

    if timed:
        next_timed = min(max(FIRST_TIMED, sizes[0]), sizes[-1])
        while next_timed not in seconds:
            seconds[next_timed] = measure(resolved(next_timed, 1, ANY_DROPOUT), training)
            speed = Speed.through([(shape(size).multiplies, taken) for size, taken in seconds.items()])
            next_timed = best()[0]
    size, members = best()
    weights = shape(size).multiplies
    symbols = None if budget is not None and not timed else symbols_read(size, members)
    dropout = 0.0 if symbols is None else default_dropout(symbols / text, weights / text, wide)
    learning_rate = training.learning_rate or default_learning_rate(size, wide and optimiser == "adamw")
    weight_decay = training.weight_decay
    if weight_decay is None:
        weight_decay = default_weight_decay(learning_rate, text / (batch_size * training.chunk_length), wide)
    training = replace(training, learning_rate=learning_rate, weight_decay=weight_decay)
    return Plan(resolved(size, members, dropout), training, symbols, 1 / (members * seconds[size]) if timed else None)


def shape_of(cell: str, options: Any, vocabulary: int, level: str, size: int) -> Shape:
    """Return the shape of a model with `size` units and the user's other options."""
    from chainrule.layers import AdaptiveSoftmax

    adaptive = options.adaptive_softmax
    if adaptive is None:
        adaptive = level == "word" and AdaptiveSoftmax.default_cutoffs(vocabulary) is not None
    tied, wide = tie_weights(options, level), level in ("word", "bpe")
    embedding = options.embedding_size or (size if wide or tied else min(64, size))
    narrow = vocabulary <= NGRAM_VOCABULARY and not wide and not tied
    order = options.ngram_order or (3 if narrow else 1)
    return Shape(cell, vocabulary, size, options.num_layers or 1, embedding, adaptive, tied, order)


def tie_weights(options: Any, level: str) -> bool:
    """Tell if the embedding is the output matrix: as the user set, else for words and subwords."""
    if options.tie_weights is not None:
        return options.tie_weights
    return level in ("word", "bpe") and options.embedding_size is None


def default_batch_size(symbols: int, chunk_length: int) -> int:
    """Return 32 rows; fewer for a short text, so that each row has 16 chunks."""
    return max(1, min(32, symbols // (16 * chunk_length)))


def default_dropout(passes: float, weights_a_symbol: float, wide: bool) -> float:
    """Increase dropout with the passes over the text, up to 0.5; less for a model small for its text.

    >>> default_dropout(12, 1.0, wide=False), default_dropout(12, 0.2, wide=False), default_dropout(2, 1.0, wide=False)
    (0.3, 0.15, 0.0)
    >>> default_dropout(12, 3.0, wide=True)
    0.4
    """
    a_doubling = 0.2 if wide else 0.15
    share = a_doubling * max(0.0, math.log2(passes / 3))
    return round(min(0.5, share * min(1.0, (weights_a_symbol / 0.8) ** 0.5)), 2)


def default_weight_decay(learning_rate: float, steps_a_pass: float, wide: bool) -> float:
    """Return the decay that forgets over one pass, 1 / (learning rate · steps per pass); less for words.

    >>> default_weight_decay(0.008, 434, wide=False), default_weight_decay(0.008, 4e6, wide=False)
    (0.29, 0.01)
    """
    return 0.01 if wide else forgetting_decay(steps_a_pass, learning_rate)


def default_learning_rate(size: int, cautious: bool) -> float:
    """Return the peak learning rate for a number of units; half for AdamW with wide, shared embeddings.

    >>> default_learning_rate(256, False), default_learning_rate(256, True), default_learning_rate(1024, False)
    (0.01, 0.005, 0.005)
    """
    return (0.005 if cautious else 0.01) * min(1.0, (256 / size) ** 0.5)


# N-grams of an order as a share of the symbols. With 0.6 tiny Shakespeare has order 8, a third of the tables of order
# 12 and 0.001 nats more; texts that repeat themselves keep 12. Words need what is there once.
MOST_DIFFERENT = {"char": 0.6, "byte": 0.6, "word": 1.0, "bpe": 1.0}
_FEWEST_SYMBOLS, _MOST_SYMBOLS = 1 << 12, 1 << 22
_SYMBOLS_A_SECOND = 50_000  # of a budget: counting takes 1 or 2% of it, on a slow machine 5%


def count_ngrams(run: "TextTask") -> None:
    """Count the n-grams of a new run's text; a run with initial weights keeps their counts."""
    import torch

    from chainrule.layers import KneserNey
    from chainrule.tensor_files import read_tensors, write_tensors

    order, budget = run.training.kneser_ney_order, run.config.duration.budget
    if not order:
        return
    if run.config.init is not None:  # they belong to the weights
        tables, _ = read_tensors(Path(run.config.init.run) / NGRAMS)
        write_tensors(run.path / NGRAMS, tables, ngrams_record(run))
        return
    corpus, most = run.corpus(), _MOST_SYMBOLS
    if budget is not None:
        most = min(most, max(_FEWEST_SYMBOLS, int(budget * _SYMBOLS_A_SECOND)))
    lines = corpus.reading == "lines"
    with progress_bars() as begin:
        begin(None, "counting n-grams")
        text = _last_lines(corpus.train, most, len(corpus.vocabulary)) if lines else _last(corpus.train, most)
        if len(text) < 2:
            source = run.config.sources["source"] or run.facts.source.name
            raise ValueError(f"{source}: expected at least two symbols to train on, got {len(text)}: add text")
        symbols, most_different = torch.from_numpy(text), MOST_DIFFERENT[corpus.level]
        ngrams = KneserNey.fit(symbols, len(corpus.vocabulary), order, lines=lines, most_different=most_different)
    write_tensors(run.path / NGRAMS, ngrams.tables(), ngrams_record(run))


def _last(tokens: "Tokens", most: int) -> "Ids":
    """Take the end of a stream: it resembles what follows most."""
    return tokens.slice(max(0, len(tokens) - most), len(tokens))


def _last_lines(tokens: "Tokens", most: int, begin: int) -> "Ids":
    """Take the last lines, each after the symbol `begin`, the last one cut to fit."""
    import numpy as np

    starts, stops = tokens.line_bounds(np.arange(max(0, tokens.line_count - most), tokens.line_count))
    first = min(int(np.searchsorted(starts, int(stops[-1]) - most)), len(starts) - 1)
    text = tokens.slice(int(starts[first]), min(int(stops[-1]), int(starts[first]) + most))
    return np.insert(text, starts[first:] - starts[first], begin)
