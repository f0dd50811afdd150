"""Pairs of sentences: each becomes numbers, a translator reads the source and writes the target.

data/source.json, target.json     the vocabularies
data/train.*, data/valid.*        the pairs as numbers; of those held out the text, too
data/pairs.json                   counts and fingerprints
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from chainrule.option_error import OptionError, option
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.heavy import pair_data
from chainrule_app.printing import counted, measured_part
from chainrule_app.readers.record_keys import keys_of
from chainrule_app.tasks.config import CheckedOptions, Counts, Facts, Fingerprint, Model, Planned, RunConfig
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import (
    BatchSize,
    Cell,
    LearningRate,
    MinCount,
    OptimisationOptions,
    SplitOptions,
    Warmup,
)
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.size_schedule import SizeSchedule, expected_passes, record_resolved, time_passes
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data import Vocabulary
    from chainrule.models import Seq2Seq, TransformerSeq2Seq
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.pairs import Pairs

    TranslationModel: TypeAlias = Seq2Seq | TransformerSeq2Seq

# A Transformer for little data is small, with narrow feed-forward networks (Wu et al. 2021).
TRANSFORMER_SIZES = SizeSchedule(
    "symbols", ({"model_size": 128, "feed_forward_size": 256}, {"model_size": 96, "feed_forward_size": 192}), passes=4
)
FEWEST_STEPS = 1000  # of training; below it batches are halved
WARM_UP_STEPS = 500
MOST_DROPOUT = {"seq2seq": 0.4, "transformer": 0.3}
LEARNING_RATE: dict[str, dict[str, float]] = {  # by model and optimiser; of a Transformer of 256 features
    "seq2seq": {"adamw": 0.002, "muon": 0.004},
    "transformer": {"adamw": 0.001, "muon": 0.003},
}


def resolve_training(config: RunConfig, given: frozenset[str], steps_per_epoch: int) -> RunConfig:
    """Resolve the options of a new run: learning rate, dropout, and for a Transformer warm-up, batch and feed-forward
    size.
    """
    options, training, transformer = config.options, config.training, config.model == "transformer"
    passes = expected_passes(config, steps_per_epoch)
    rate = LEARNING_RATE[config.model][training.optimiser]
    size: dict[str, Any] = {}
    trained: dict[str, Any] = {"learning_rate": rate}
    if transformer or passes is not None:
        size["dropout"] = default_dropout(passes, MOST_DROPOUT[config.model])
    if transformer:
        steps, batch_size = None if passes is None else passes * steps_per_epoch, training.batch_size
        halved = config.duration.steps is None and "batch_size" not in given
        if halved and steps is not None and steps < FEWEST_STEPS:
            batch_size, steps = max(1, batch_size // 2), 2 * steps
        size["feed_forward_size"] = 2 * options.model_size
        rate = default_learning_rate(rate, options.model_size)
        trained = {"learning_rate": rate, "warmup": default_warmup(steps), "batch_size": batch_size}
    size, trained = ({name: value for name, value in part.items() if name not in given} for part in (size, trained))
    config = record_resolved(config, [*size, *trained])
    return replace(config, options=replace(options, **size), training=replace(training, **trained))


def default_learning_rate(rate: float, model_size: int) -> float:
    """Scale the peak learning rate of a Transformer of 256 features as 1/D.

    >>> default_learning_rate(0.001, 256), default_learning_rate(0.001, 128)
    (0.001, 0.002)
    """
    return round(256 * rate / model_size, 5)


def default_warmup(steps: float | None) -> float:
    """Return the share of a run for about `WARM_UP_STEPS` steps, at most a fifth.

    >>> default_warmup(10_000), default_warmup(600), default_warmup(None)
    (0.05, 0.2, 0.1)
    """
    return 0.1 if steps is None else round(min(0.2, max(0.05, WARM_UP_STEPS / max(steps, 1))), 3)


def default_dropout(passes: float | None, most: float) -> float:
    """Increase dropout with the passes over the pairs, from 0 at two; 0.2 if they are unknown.

    >>> default_dropout(2, 0.3), default_dropout(8, 0.3), default_dropout(100, 0.3), default_dropout(None, 0.3)
    (0.0, 0.2, 0.3, 0.2)
    """
    return 0.2 if passes is None else round(min(most, 0.1 * log2(max(passes / 2, 1.0))), 2)


@dataclass(frozen=True)
class PairsData(SplitOptions):
    source_key: str | None = None
    """Key of the source in JSON Lines or Parquet; detected by default."""
    target_key: str | None = None
    """Key of the target in JSON Lines or Parquet; detected by default."""
    level: Literal["word", "bpe"] = "word"
    """word: text between blanks; bpe: pieces of words, for ordinary text."""
    min_count: MinCount = 2
    """Rarer words are <unk>."""
    vocabulary_size: Annotated[int, Range(4, 1 << 24)] | None = None
    """Maximum symbols of each vocabulary; by default unlimited for words, 4096 for bpe."""
    max_length: Annotated[int, Range(1, 1 << 20)] = 256
    """Maximum symbols of a sentence."""
    tokenize: Literal["auto", "13a", "intl", "char", "none"] = "auto"
    """Word tokenisation of BLEU: 13a, or none for tokenised text; auto uses none at level word."""


@dataclass(frozen=True)
class TransformerOptions(CheckedOptions):
    model_size: Size = 192
    """Features between the blocks, a multiple of --num-heads."""
    num_layers: Layers = 3
    """Blocks of the encoder, and of the decoder."""
    num_heads: Layers = 4
    """Heads of attention."""
    num_kv_heads: Layers | None = None
    """Key and value heads of the decoder, a divisor of --num-heads; by default as many."""
    position: Literal["rotary", "alibi"] = "rotary"
    """How positions are known."""
    context_length: Size = 256
    """Elements of the target that a block of the decoder may read."""
    feed_forward_size: Size | None = 384
    """Units of the feed-forward networks; none takes 4 times the model size, 8/3 times for swiglu."""
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    """Function of the feed-forward networks."""
    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: of mean and variance, or of the root mean square."""
    norm_first: bool = True
    """Norms before each branch (pre-norm), or after each sum."""
    dropout: Probability = 0.0
    """Probability of zeroing in training, of the inputs and of what each branch adds; by default 0 to 0.3, more for
    more passes over the pairs."""
    tie_weights: bool = True
    """Use the target embeddings as output weights."""
    label_smoothing: Probability = 0.1
    """ε of the training objective."""


@dataclass(frozen=True)
class Seq2SeqOptions(CheckedOptions):
    cell: Cell = "gru"
    """Recurrence of encoder and decoder."""
    embedding_size: Size = 256
    """Features of a source or target word, for its embedding and for its prediction."""
    hidden_size: Size = 256
    """Units of each layer of the decoder, and of each layer and direction of the encoder."""
    num_layers: Layers = 1
    """Recurrent layers of the encoder, and of the decoder."""
    dropout: Probability = 0.4
    """Share of features dropped in training: embeddings, between layers, memory and before the output; by default 0 to
    0.4, more for more passes over the pairs."""
    attention: Literal["additive", "multiplicative"] | None = "multiplicative"
    """Score of the decoder's attention to the source; none gives it a fixed vector."""
    input_feeding: bool = True
    """Feed the attention output for the last word back to the decoder (Luong et al. 2015)."""
    tie_weights: bool = True
    """Use the target embeddings as output weights."""
    label_smoothing: Probability = 0.1
    """Share of each target that is spread over all words, in training."""


@dataclass(frozen=True)
class TranslatorTraining(OptimisationOptions):
    batch_size: BatchSize = 64
    """Batch size; halved by default if a Transformer would take less than 1,000 steps."""
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 4e-3
    """Peak learning rate; by default chosen by model and optimiser."""
    warmup: Warmup = 0.03
    """Share of the run in which the learning rate rises; for a Transformer by default 500 steps, 0.05 to 0.2."""


@dataclass(frozen=True)
class PairCounts(Counts):
    pairs: int
    source_symbols: int
    target_symbols: int
    source_unknown: int
    target_unknown: int
    source_longest: int
    target_longest: int


@dataclass(frozen=True)
class VocabularySizes(Counts):
    source: int
    target: int


@dataclass(frozen=True)
class PairsFacts(Facts):
    """Facts about prepared pairs; `target` is None if one file has both sides."""

    target: Fingerprint | None
    validation: Fingerprint | None
    validation_target: Fingerprint | None
    train: PairCounts
    valid: PairCounts
    symbols: VocabularySizes


class TranslateTask(Task["TranslationModel"]):
    name = "translate"
    help = "Train a translator on pairs of sentences."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Pairs, one per line: the source, a tab, the target; .gz too.",
            alias="--source",
            alias_help="Source sentences, one per line; with --target, replaces DATA.",
            needed="pairs of sentences",
        ),
        "target": Source("Translation of each line of --source.", "--target"),
        "validation": Source(
            "Pairs to hold out, which select the weights; a random part of DATA by default. Sources, or without "
            "--validation-target lines of source, tab, target.",
            "--validation",
        ),
        "validation_target": Source("Translation of each line of --validation.", "--validation-target"),
    }
    Data = PairsData
    Facts = PairsFacts
    Training = TranslatorTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "transformer": Model("TransformerSeq2Seq", TransformerOptions),
        "seq2seq": Model("Seq2Seq", Seq2SeqOptions),
    }
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "seq2seq": SizeSchedule(
            "symbols",
            ({"hidden_size": 192, "embedding_size": 192}, {"hidden_size": 128, "embedding_size": 128}),
            passes=4,
        ),
        "transformer": TRANSFORMER_SIZES,
    }
    NEEDS: ClassVar[tuple[str, ...]] = ("sacrebleu",)
    WORDS: ClassVar[dict[str, str]] = {"transformer": "translator"}
    PREPARED = f"{DATA}/pairs.json"
    NEXT = ("chainrule translate {run} FILE", "chainrule evaluate {run} --source FILE --target FILE")
    metric_name = "bleu"
    CHECKED = (4, 12)
    plots = True

    @property
    def tokenize(self) -> str:
        if self.data.tokenize != "auto":
            return self.data.tokenize
        return "none" if self.data.level == "word" else "13a"

    @property
    def longest(self) -> int:
        """Return the longest translation to search for, in symbols: a few more than in training."""
        return min(int(self.facts.train.target_longest), int(self.data.max_length) + 1) + 10  # <eos> is counted there

    @cached_property
    def pairs(self) -> "Pairs":
        return pair_data.open_pairs(self.path / DATA)

    @cached_property
    def vocabularies(self) -> "tuple[Vocabulary, Vocabulary]":
        """The symbols of the source and of the target."""
        return pair_data.open_vocabularies(self.path / DATA)

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        there = {name for name, source in request.sources.items() if source is not None}
        there -= {"source"} - given  # one file of both, not --source
        for one, other in (("source", "target"), ("target", "source"), ("validation_target", "validation")):
            if one in there and other not in there:
                raise OptionError(one, f"expected {option(other)} too, got none")
        if request.sources["source"] is None:
            raise OptionError(
                "data",
                f"expected pairs of sentences to train on, or {option('source')} and {option('target')}, got none",
            )

    def prepare(self, old: "TranslateTask | None" = None) -> dict[str, Any]:
        sources, options = self.config.sources, asdict(self.data)
        for name in ("tokenize", "source_key", "target_key"):  # of the metric; of records that were written as lines
            del options[name]
        manifest = pair_data.prepare_pairs(
            self.path / DATA,
            self.source,
            sources["target"],
            validation_source=sources["validation"],
            validation_target=sources["validation_target"],
            seed=self.training.seed,
            vocabularies=None if old is None else old.vocabularies,
            **options,
        ).manifest
        return manifest | {"validation": manifest["validation_source"]}

    def plan(self, given: frozenset[str]) -> Planned:
        config, timed = super().plan(given)
        batches, _ = self.batches((0, 1))
        planned = resolve_training(config, given, batches.steps_per_epoch)
        batch_size = planned.training.batch_size
        if config.settled is None or batch_size == config.training.batch_size:
            return Planned(planned, timed)
        # Half a batch takes more than half the time, so the plan is made again from its speed.
        names = [*config.settled.options, "batch_size"]
        config = replace(config, training=replace(config.training, batch_size=batch_size), settled=None)
        run = type(self)(self.path, config)
        batches, _ = run.batches((0, 1))
        (config, timed), _ = time_passes(run, Planned(config), batches)
        assert config.settled is not None
        config = replace(config, settled=replace(config.settled, options=names))
        return Planned(resolve_training(config, given | {"batch_size"}, batches.steps_per_epoch), timed)

    def build(self) -> "TranslationModel":
        symbols = self.facts.symbols
        return self.built(source_vocab_size=symbols.source, target_vocab_size=symbols.target)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        pairs, training = self.pairs, self.training
        batches = pair_data.pair_batches(pairs.train, training.batch_size, training.seed, shard)
        return batches, lambda: pair_data.pair_evaluation(pairs.valid)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield f"{_names(facts)}: {_counted(facts.train)} to train on, {_counted(facts.valid)} held out"
        if self.data.source_key is not None:
            yield f"{facts.source.name}: {keys_of(self.data)}"
        train = facts.train
        for side, symbols, unknown, different in (
            ("source", train.source_symbols, train.source_unknown, facts.symbols.source),
            ("target", train.target_symbols, train.target_unknown, facts.symbols.target),
        ):
            rare = f", {unknown / symbols:.1%} of its words are <unk>" if self.data.level == "word" else ""
            yield f"{side}: {counted(different, 'symbol')} at level {self.data.level}{rare}"

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        part = measured_part(rows, self.facts.valid.pairs)
        return (
            {"bleu": value, "perplexity": evaluation.perplexity},
            f"BLEU {value:.2f} by greedy decoding of {part}held-out sentences (perplexity {evaluation.perplexity:.2f})",
        )

    @property
    def basis(self) -> Basis:
        return Basis(
            "symbol",
            tokens=f"{self.data.level} level, {counted(self.facts.symbols.target, 'symbol')}",
            given="the source",
        )


def _names(facts: PairsFacts) -> str:
    source, target = facts.source.name, facts.target
    return source if target is None else f"{source} and {target.name}"


def _counted(part: PairCounts) -> str:
    return f"{counted(part.pairs, 'pair')} ({counted(part.target_symbols, 'symbol')} to predict)"
