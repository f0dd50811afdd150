"""Pairs of sentences: each becomes numbers, a translator reads the source and writes the target.

data/source.json, target.json     the vocabularies
data/train.*, data/valid.*        the pairs as numbers; of those held out the text, too
data/pairs.json                   counts and fingerprints
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule._app.tasks.abilities import CheckedRows, Checks, Evaluates, Inspects, Predicts
from chainrule._app.tasks.config import (
    Counts,
    Facts,
    Fingerprint,
    OptimisationOptions,
    RunConfig,
    SplitOptions,
    within,
)
from chainrule._app.tasks.display import counted, measured_part, quoted
from chainrule._app.tasks.ladder import Ladder
from chainrule._app.tasks.ledger import Basis
from chainrule._app.tasks.model import Model
from chainrule._app.tasks.run_directory import DATA
from chainrule._app.tasks.task import Shard, Source, Task
from chainrule._app.tasks.translate.inspection import TranslatorInspection, inspect_translator
from chainrule._app.tasks.translate.plan import LADDER, with_usual_training
from chainrule._app.tasks.translate.prediction import (
    PLOTS,
    TranslationEvaluation,
    TranslationOptions,
    evaluate_translator,
    translate,
)

if TYPE_CHECKING:
    from chainrule._app.tasks.translate.searching import TranslationModel
    from chainrule.data._pairs import Pairs
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric

_CHECKED_ROWS, _CHECKED_ELEMENTS = 4, 12


@dataclass(frozen=True)
class PairsData(SplitOptions):
    """How pairs of sentences are read."""

    level: Literal["word", "bpe"] = "word"
    """word: text between blanks; bpe: pieces of words, for ordinary text."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer words are <unk>."""
    vocabulary_size: int | None = within(None, 4, 1 << 24)
    """Most symbols of each vocabulary; no limit to words, 4096 pieces, if not given."""
    max_length: int = within(256, 1, 1 << 20)
    """Most symbols of a sentence."""
    tokenize: Literal["auto", "13a", "intl", "char", "none"] = "auto"
    """How BLEU cuts words: 13a, or none where words and punctuation are separate already; auto: none at level word."""


@dataclass(frozen=True)
class TranslatorTraining(OptimisationOptions):
    """How a translator is trained."""

    batch_size: int = within(64, 1, 1 << 24)
    """Rows of a batch; half of it where a Transformer would take less than 1,000 steps, where not given."""
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: float = within(4e-3, 0.0, 1e3)
    """Peak learning rate; where not given it follows from the model and the optimiser."""
    warmup: float = within(0.03, 0.0, 1.0)
    """Share of the run in which the learning rate rises; of a Transformer 500 steps, 0.05 to 0.2, where not given."""
    scheduled_sampling: Literal["none", "linear", "inverse-sigmoid"] = "none"
    """Scheduled sampling: how the probability to read the model's own word, not the reference's, rises to one half."""
    sampling_steps: int = within(10_000, 1, 1 << 53)
    """Steps in which the probability of --scheduled-sampling rises."""


@dataclass(frozen=True)
class PairCounts(Counts):
    """Counts of a part of the pairs."""

    pairs: int
    source_symbols: int
    target_symbols: int
    source_unknown: int
    target_unknown: int
    source_longest: int
    target_longest: int


@dataclass(frozen=True)
class VocabularySizes(Counts):
    """Symbols of each side."""

    source: int
    target: int


@dataclass(frozen=True)
class PairsFacts(Facts):
    """Results of preparing pairs; `target` is None where one file has both sides."""

    target: Fingerprint | None
    validation: Fingerprint | None
    validation_target: Fingerprint | None
    train: PairCounts
    valid: PairCounts
    symbols: VocabularySizes


class TranslateTask(Task["TranslationModel"], Predicts, Evaluates, Checks, Inspects):
    """A run on pairs of sentences."""

    name = "translate"
    help = "Train a translator on pairs of sentences."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Pairs, a line each: the source, a tab, the target; .gz too.",
            alias="--source",
            alias_help="In place of DATA: source sentences, a line each, and with --target their translations.",
            needed="pairs of sentences",
        ),
        "target": Source("The translation of each line of --source.", "--target"),
        "validation": Source(
            "Pairs to hold out, in place of some of the others: they choose the weights that are kept. Sources, or "
            "without --validation-target lines of source, tab, target.",
            "--validation",
        ),
        "validation_target": Source("The translation of each line of --validation.", "--validation-target"),
    }
    Data = PairsData
    Facts = PairsFacts
    Training = TranslatorTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "transformer": Model("TransformerSeq2Seq", model_size=192, feed_forward_size=384),
        "seq2seq": Model("Seq2Seq"),
    }
    BUDGET = "10m"
    LADDERS: ClassVar[dict[str, Ladder]] = {
        "seq2seq": Ladder(
            "symbols",
            (
                {"hidden_size": 192, "embedding_size": 192},
                {"hidden_size": 128, "embedding_size": 128},
            ),
            passes=4,
        ),
        "transformer": LADDER,
    }
    NEEDS: ClassVar[tuple[str, ...]] = ("sacrebleu",)
    PREPARED = f"{DATA}/pairs.json"
    metric_name = "bleu"
    Prediction, predict = TranslationOptions, translate
    PLOTS = PLOTS
    Evaluation, evaluate = TranslationEvaluation, evaluate_translator
    Inspection, inspect = TranslatorInspection, inspect_translator

    @property
    def facts(self) -> PairsFacts:
        return cast(PairsFacts, self.config.facts)

    @property
    def tokenize(self) -> str:
        """How sacrebleu cuts words."""
        if self.data.tokenize != "auto":
            return self.data.tokenize
        return "none" if self.data.level == "word" else "13a"

    @property
    def longest(self) -> int:
        """Symbols of the longest translation to search for: some more than training ever saw."""
        return min(int(self.facts.train.target_longest), int(self.data.max_length) + 1) + 10  # <eos> is counted there

    @cached_property
    def pairs(self) -> "Pairs":
        """The prepared pairs and their vocabularies."""
        from chainrule.data._pairs import open_pairs

        return open_pairs(self.path / DATA)

    @classmethod
    def run_name(cls, asked: RunConfig) -> str:
        source = asked.sources["source"]
        kind = "translator" if asked.model == "transformer" else asked.model
        return f"{'pairs' if source is None else Path(source).name.partition('.')[0]}-{kind}"

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        for one, other in (("--source", "--target"), ("--target", "--source"), ("--validation-target", "--validation")):
            if one in given and other not in given:
                raise ValueError(f"{one}: expected {other} too, got none")
        if asked.sources["source"] is None:
            raise ValueError("DATA: expected pairs of sentences to train on, or --source and --target, got none")

    def prepare(self, old: "TranslateTask | None" = None) -> dict[str, Any]:
        from chainrule.data._pairs import prepare_pairs

        sources, options = self.config.sources, asdict(self.data)
        assert sources["source"] is not None
        del options["tokenize"]  # of the metric
        found = prepare_pairs(
            self.path / DATA,
            sources["source"],
            sources["target"],
            validation_source=sources["validation"],
            validation_target=sources["validation_target"],
            seed=self.training.seed,
            vocabularies=None if old is None else (old.pairs.source_vocabulary, old.pairs.target_vocabulary),
            **options,
        ).manifest
        return found | {"validation": found["validation_source"]}

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        if config.model == "transformer" and config.training.scheduled_sampling != "none":
            raise ValueError(
                "--scheduled-sampling: a Transformer is trained on all words at once and draws none of its own: "
                "leave it out, or take --model seq2seq"
            )

    def plan(self, given: frozenset[str]) -> RunConfig:
        return with_usual_training(super().plan(given), given, self.batches((0, 1))[0].steps_per_epoch)

    def build(self) -> "TranslationModel":
        symbols = self.facts.symbols
        return self.built(source_vocab_size=symbols.source, target_vocab_size=symbols.target)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data._pairs import pair_batches, pair_evaluation

        pairs, training = self.pairs, self.training
        batches = pair_batches(
            pairs.train,
            training.batch_size,
            training.seed,
            shard,
            decay=training.scheduled_sampling,
            decay_steps=training.sampling_steps,
        )
        return batches, lambda: pair_evaluation(pairs.valid)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield f"{_names(facts)}: {_counted(facts.train)} to train on, {_counted(facts.valid)} held out"
        train = facts.train
        for side, symbols, unknown, different in (
            ("source", train.source_symbols, train.source_unknown, facts.symbols.source),
            ("target", train.target_symbols, train.target_unknown, facts.symbols.target),
        ):
            rare = f", {unknown / symbols:.1%} of its words are <unk>" if self.data.level == "word" else ""
            yield f"{side}: {counted(different, 'symbol')} at level {self.data.level}{rare}"

    def validation_metric(self) -> "ValidationMetric":
        from chainrule._app.tasks.translate.searching import translation_metric

        return translation_metric(self)

    def best(self, found: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        part = measured_part(rows, self.facts.valid.pairs)
        return (
            {"bleu": value, "perplexity": found.perplexity},
            f"BLEU {value:.2f} by greedy decoding of {part}held-out sentences (perplexity {found.perplexity:.2f})",
        )

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        return [f"chainrule translate {path} FILE", f"chainrule evaluate {path} --source FILE --target FILE"]

    def describe(self, about: dict[str, Any]) -> dict[str, str]:
        facts = self.facts
        held_out = f" ({facts.validation.name})" if facts.validation else ""
        return {
            "data": f"{_names(facts)}: {_counted(facts.train)}",
            "held out": f"{_counted(facts.valid)}{held_out}",
            "vocabulary": f"level {self.data.level}: {counted(facts.symbols.source, 'symbol')} of the source, "
            f"{facts.symbols.target:,} of the target",
        }

    @property
    def basis(self) -> Basis:
        return Basis(
            "symbol",
            tokens=f"{self.data.level} level, {counted(self.facts.symbols.target, 'symbol')}",
            given="the source",
        )

    def checked_rows(self) -> CheckedRows:
        import numpy as np

        held_out = self.pairs.valid
        batch = held_out.batch(np.arange(min(_CHECKED_ROWS, len(held_out))))
        assert batch.lengths is not None
        return CheckedRows(
            self.model(), batch.x[:, :_CHECKED_ELEMENTS], batch.context, batch.lengths.clamp(max=_CHECKED_ELEMENTS)
        )


def _names(facts: PairsFacts) -> str:
    """The files of the pairs."""
    source, target = facts.source.name, facts.target
    return source if target is None else f"{source} and {target.name}"


def _counted(part: PairCounts) -> str:
    """How many pairs a part has, and symbols of their targets."""
    return f"{counted(part.pairs, 'pair')} ({counted(part.target_symbols, 'symbol')} to predict)"
