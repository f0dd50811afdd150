"""Texts: a file becomes symbols, and a language model reads them one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any, ClassVar, cast

from chainrule._app.tasks._source import run_word
from chainrule._app.tasks.abilities import CheckedRows, Checks, Compresses, Embeds, FileCodec, Inspects, Samples, Scores
from chainrule._app.tasks.codes import CodedTask
from chainrule._app.tasks.config import Counts, Facts, Fingerprint, RunConfig
from chainrule._app.tasks.display import counted, format_duration, quoted, said_passes, size_of
from chainrule._app.tasks.ledger import Basis, LedgerEntry
from chainrule._app.tasks.recipe import averaged_with, share_of
from chainrule._app.tasks.run_directory import CONFIG, DATA, VOCABULARY
from chainrule._app.tasks.task import Shard, Source, Task
from chainrule._app.tasks.text.embedding import TextEmbedding, embed_lines
from chainrule._app.tasks.text.inspection import TextInspection, inspect_text
from chainrule._app.tasks.text.options import CODED, DROPOUTS, LADDERS, MODELS, PLANNED, TextData, TextTraining
from chainrule._app.tasks.text.rows import TextScoring, score_text
from chainrule._app.tasks.text.sampling import TextSampling, sample_text, text_pieces

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._base import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import GradientProbe, TrainingBatches, ValidationBatches
    from chainrule.training._validation import Observe, OnValidation

_ELEMENT = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}
_SAMPLE_LENGTH = {"char": 200, "byte": 200, "word": 40, "bpe": 60}
_CHECKED_ROWS, _CHECKED_ELEMENTS = 4, 32


@dataclass(frozen=True)
class TextCounts(Counts):
    """Counts of a part of a text."""

    elements: int
    lines: int
    unknown: int
    characters: int
    bytes: int


@dataclass(frozen=True)
class TextFacts(Facts):
    """Results of preparing a text."""

    validation: Fingerprint | None
    train: TextCounts
    valid: TextCounts
    tokenizer: Fingerprint | None = None

    def __post_init__(self) -> None:
        if not ((self.train.elements and self.valid.elements) or self.imported):
            raise ValueError("train and valid: expected elements, got none")

    @property
    def imported(self) -> bool:
        """Whether the model was trained elsewhere: its checkpoint is the source, and there is no text."""
        return not (self.train.elements or self.valid.elements)


class TextTask(CodedTask["AutoregressiveModel"], Scores, Samples, Inspects, Checks, Compresses, Embeds):
    """A run on a text."""

    name = "text"
    help = "Train a model of a text."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Texts, UTF-8 of any size: files, patterns such as 'logs/*.gz', or - for standard input; .gz, .zst, and "
            "JSON Lines and Parquet with a column of texts. The text built into Python if not given."
        ),
        "validation": Source("A file to hold out in place of the tail of DATA.", "--validation"),
        "tokenizer": Source(
            "A tokenizer.json of byte-level BPE, as of GPT-2, in place of fitted symbols.", "--tokenizer"
        ),
    }
    Data = TextData
    Facts = TextFacts
    Training = TextTraining
    MODELS = MODELS
    CODED = (CODED,)
    LADDERS = LADDERS
    PLAIN: ClassVar[dict[str, Any]] = {"num_members": 1, "ngram_order": 1, "kneser_ney_order": 0}
    FREE: ClassVar[frozenset[str]] = Task.FREE | {"watch_gradients", "watch_every"}
    PREPARED = f"{DATA}/corpus.json"
    Scoring, score = TextScoring, score_text
    Sampling, sample, pieces = TextSampling, sample_text, text_pieces
    Inspection, inspect = TextInspection, inspect_text
    Embedding, embed = TextEmbedding, embed_lines

    @property
    def facts(self) -> TextFacts:
        return cast(TextFacts, self.config.facts)

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        """The symbols, read once."""
        from chainrule.data._corpus import load_vocabulary

        vocabulary = load_vocabulary(self.path / VOCABULARY)
        if vocabulary.level != self.data.level:
            raise ValueError(
                f"{self.path / VOCABULARY}: the level is {vocabulary.level!r}, but {CONFIG} says "
                f"{self.data.level!r}: one of the two files was changed"
            )
        return vocabulary

    def lacking(self) -> tuple[type, ...]:
        return ()  # models without a code have features to embed

    @classmethod
    def run_name(cls, asked: RunConfig) -> str:
        source = asked.sources["source"]
        data = "python-help" if source is None else run_word(source)
        return f"{data}-{asked.data.level if asked.sources['tokenizer'] is None else 'bpe'}-{asked.model}"

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        training = asked.training
        fitted = given & {"--level", "--vocabulary-size", "--min-count"}
        if asked.sources["tokenizer"] is not None and fitted and (asked.data.level != "bpe" or len(fitted) > 1):
            raise ValueError(f"{min(fitted)}: the symbols are those of --tokenizer: leave it out")
        if asked.model == CODED and "--reading" in given and asked.data.reading != "lines":
            raise ValueError(f"--reading {asked.data.reading}: a {CODED} encodes whole lines: leave it out")
        if "--watch-every" in given and not training.watch_gradients:
            raise ValueError(
                "--watch-every: says how often --watch-gradients looks, which was not asked for: give both"
            )
        if training.watch_gradients and asked.data.reading == "stream" and training.chunk_length < 2:
            raise ValueError(
                "--chunk-length: expected at least 2 with --watch-gradients: nothing flows back through one step"
            )

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        order = config.training.kneser_ney_order
        if order == 1:
            raise ValueError("kneser_ney_order: expected 2 to 16 symbols, or 0 for no counts, got 1")
        if order and config.model == CODED:
            raise ValueError(f"kneser_ney_order: a {CODED} has no next symbol to average counts with: leave it out")
        if config.facts is not None:  # prepared: nothing is left open any more
            planned = [name for name in cls.MODELS[config.model].planned if hasattr(config.options, name)]
            settled = {name: getattr(config.options, name) for name in planned}
            settled |= {name: getattr(config.training, name) for name in PLANNED}
            settled["validation_fraction"] = config.data.validation_fraction
            if missing := [name for name, value in settled.items() if value is None]:
                raise ValueError(f"{missing[0]}: expected a value, got none")
        if getattr(config.options, "position", None) == "learned" and not (config.facts and config.facts.imported):
            context, lines = config.options.context_length, config.data.reading == "lines"
            if not lines or config.training.line_length > context:
                longest = f"--line-length {config.training.line_length}" if lines else "a stream, which has no end"
                raise ValueError(
                    f"--position learned: ends after --context-length {context} symbols, got {longest}: take rotary, "
                    f"or --reading lines with a --line-length of at most {context}"
                )
        if getattr(config.options, "adaptive_softmax", False) and config.data.level != "word":
            raise ValueError(
                "adaptive_softmax: needs symbols numbered by frequency, which --level word has, "
                f"got --level {config.data.level}: leave it out"
            )

    @classmethod
    def settle(cls, asked: RunConfig) -> RunConfig:
        from chainrule._app.tasks.text.preparing import usual_fraction

        if asked.sources["tokenizer"] is not None:
            asked = replace(asked, data=replace(asked.data, level="bpe"))
        if asked.model == CODED:
            asked = replace(asked, data=replace(asked.data, reading="lines"))
        if asked.data.validation_fraction is not None:
            return asked
        fraction = usual_fraction(asked.sources["source"])
        return replace(asked, data=replace(asked.data, validation_fraction=fraction))

    def prepare(self, old: "TextTask | None" = None) -> dict[str, Any]:
        from chainrule._app.tasks.text.preparing import prepared

        return prepared(self, None if old is None else old.vocabulary).manifest

    def options_in_weights(self) -> dict[str, Any]:
        return {"kneser_ney_order": self.training.kneser_ney_order}

    def plan(self, given: frozenset[str]) -> RunConfig:
        from chainrule._app.tasks.text.preparing import count_ngrams

        if self.MODELS[self.config.model].planned:
            from chainrule._app.tasks.text.plan import plan_recurrence

            config = plan_recurrence(self)
        else:
            from chainrule._app.tasks.text.block_plan import plan_blocks

            config = plan_blocks(self, given)
        count_ngrams(TextTask(self.path, config))
        return config

    def choice(self) -> str:
        if self.config.model in self.LADDERS:
            options = asdict(self.config.options)
            said = (f"{name.replace('_', ' ')} {options[name]:g}" for name in DROPOUTS)
            return ", ".join([super().choice(), *said])
        settled, options, duration = self.config.settled, self.config.options, self.config.duration
        size = f"{counted(options.num_layers, 'layer')} of {options.hidden_size} units, dropout {options.dropout:g}"
        if settled is None or settled.passes is None:
            return size
        passes = said_passes(settled.passes, "text")
        if settled.elements_per_second is None or duration.budget is None:
            return f"{passes}: {size}"
        speed = f"{settled.elements_per_second:,.0f} {_ELEMENT[self.data.level]}s/s here"
        return f"{speed}; {format_duration(duration.budget)} is about {passes}: {size}"

    def added_parts(self) -> Sequence[str]:
        from chainrule._app.tasks.text.preparing import fitted_order

        counts = [f"{fitted_order(self)}-gram counts"] if self.training.kneser_ney_order else []
        order = getattr(self.config.options, "ngram_order", None) or 1
        return [*counts, *([f"{order}-gram embeddings"] if order > 1 else [])]

    @property
    def _counts(self) -> str:
        from chainrule._app.tasks.text.preparing import fitted_order

        return f"counts of up to {fitted_order(self)} {_ELEMENT[self.data.level]}s"

    def build(self) -> "AutoregressiveModel":
        from chainrule._app.tasks.text.preparing import with_ngrams

        return with_ngrams(self, self._network())

    def _network(self) -> "AutoregressiveModel":
        return self.built(vocab_size=len(self.vocabulary), eos=self.vocabulary.eos)

    def _unfilled(self) -> "AutoregressiveModel":
        import torch

        from chainrule._app.tasks.text.preparing import with_ngrams

        with torch.device("meta"):  # no memory and no random weights
            network = self._network()
        return with_ngrams(self, network.to_empty(device="cpu"))

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule._app.tasks.text.preparing import batches_of, corpus_of

        return batches_of(self, corpus_of(self), shard)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield (
            f"{facts.source.name}: {counted(facts.train.elements, 'symbol')} to train on, "
            f"{facts.valid.elements:,} held out, {len(self.vocabulary):,} different ({self.data.level})"
        )
        if self.config.init is not None:
            unknown = facts.train.unknown / facts.train.elements
            yield f"starting from {self.config.init.run}; {unknown:.2%} of the symbols to train on are unknown to it"

    def on_validation(self) -> "OnValidation":
        if self.has_code:
            from chainrule._app.tasks.text.codes import sentence_preview

            return sentence_preview(self)
        from chainrule._app.tasks.text._sampler import Sampler

        vocabulary = self.vocabulary
        ends = vocabulary.eos if self.data.reading == "lines" else None

        def sample(trained: Any, step: int, seconds: float) -> str:
            sampler = Sampler(trained, vocabulary, eos=ends)
            return sampler.texts(1, vocabulary.begin(""), _SAMPLE_LENGTH[self.data.level], step)[0][0]

        return sample

    def coded_rows(self) -> "tuple[Tensor, Tensor | None]":
        from chainrule._app.tasks.text.codes import held_out

        return held_out(self)

    def observe(self) -> "Observe | None":
        if not self.training.kneser_ney_order:
            return super().observe()

        return share_of("counts", "counts of n-grams")

    def watch(self) -> "GradientProbe | None":
        if not self.training.watch_gradients:
            return None
        from chainrule.diagnostics import gradient_profile

        return gradient_profile

    def best(self, found: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        from chainrule.training._evaluate import describe_figures, text_figures

        counts, bound = self.facts.valid, "at most " if self.has_code else ""
        figures = text_figures(found.nats_per_element * counts.elements, asdict(counts))
        # A validation that would take too much of the run reads a part, the same each time.
        whole = found.elements >= counts.elements
        part = "" if whole else f"first {found.elements:,} of {counted(counts.elements, 'symbol')} of the "
        return (
            {"bits_per_element": found.bits_per_element, "perplexity": found.perplexity} | figures,
            f"{bound}{found.bits_per_element:.4f} bits ({found.nats_per_element:.4f} nats) per "
            f"{_ELEMENT[self.data.level]} on the {part}held-out text, perplexity {found.perplexity:.4g}; "
            f"{describe_figures(figures, of_characters=self.data.level == 'char')}",
        )

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        return [f"chainrule sample {path}", f"chainrule score {path} FILE --per line --sort"]

    def describe(self, about: dict[str, Any]) -> dict[str, str]:
        about["vocabulary_size"] = len(self.vocabulary)
        facts, data = self.facts, self.data
        symbols = f"{counted(len(self.vocabulary), 'symbol')}, level {data.level}"
        if facts.imported:
            return {"data": f"imported from {facts.source.name} ({size_of(facts.source.bytes)})", "vocabulary": symbols}
        if facts.tokenizer is not None:
            symbols += f", of {facts.tokenizer.name}"
        held_out = facts.validation.name if facts.validation else f"last {data.validation_fraction:.0%}"
        told = {
            "data": f"{facts.source.name} ({size_of(facts.source.bytes)}), read as {data.reading}",
            "split": f"{_count(facts.train)} to train on, {_count(facts.valid)} held out ({held_out})",
            "vocabulary": symbols,
        }
        if self.training.kneser_ney_order:
            told |= averaged_with(self, "counts", self._counts)
        return told

    @property
    def basis(self) -> Basis:
        digest = sha256(dumps(self.vocabulary.to_json(), sort_keys=True).encode()).hexdigest()
        level = self.data.level
        tokens = f"{level} level, {counted(len(self.vocabulary), 'symbol')} ({digest[:8]}), {self.data.reading}"
        if self.has_code:  # held-out lines are measured by the ELBO, of one draw
            return Basis("symbol", tokens=tokens, kind="bound", samples=1)
        return Basis("symbol", tokens=tokens)

    def held_out_sources(self) -> dict[str, Any]:
        found = super().held_out_sources()
        found.pop("seed", None)  # the tail is held out
        found.pop("tokenizer", None)  # which changes the symbols, not the text
        return found

    def held_out(self) -> LedgerEntry | None:
        entry, counts = super().held_out(), self.facts.valid
        if entry is None:
            return None
        return replace(entry, bytes=round(counts.bytes * entry.elements / counts.elements))

    def checked_rows(self) -> CheckedRows:
        from chainrule._app.tasks.text.preparing import own_window

        x, lengths, _ = own_window(self, _CHECKED_ROWS, _CHECKED_ELEMENTS)
        return CheckedRows(self.model(), x, lengths=lengths)

    def codec(self) -> FileCodec:
        from chainrule._app.tasks.text.compression import TextCodec

        return TextCodec(self.vocabulary, self.data.reading, _ELEMENT[self.data.level])


def _count(part: TextCounts) -> str:
    lines = f" in {counted(part.lines, 'line')}" if part.lines else ""
    return f"{counted(part.elements, 'symbol')}{lines}"
