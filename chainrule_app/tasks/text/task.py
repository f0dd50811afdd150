"""Texts: a file becomes symbols, and a language model reads them one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule.option_error import OptionError, option
from chainrule_app.heavy import modes
from chainrule_app.tasks.capabilities import CheckedRows, FileCodec
from chainrule_app.tasks.config import Counts, Facts, Fingerprint, RunConfig, run_word
from chainrule_app.tasks.display import counted, format_duration, format_passes, size_of
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord
from chainrule_app.tasks.model import share_of
from chainrule_app.tasks.run_directory import CONFIG, DATA, VOCABULARY
from chainrule_app.tasks.size_schedule import Planned
from chainrule_app.tasks.task import Shard, Source, Task
from chainrule_app.tasks.text.options import DROPOUTS, MODELS, PLANNED, SIZE_SCHEDULES, TextData, TextTraining

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import GradientProbe, TrainingBatches, ValidationBatches
    from chainrule_app.tasks.preview import Observe

_ELEMENT = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}
_CHECKED_ROWS, _CHECKED_ELEMENTS = 4, 32


@dataclass(frozen=True)
class TextCounts(Counts):
    elements: int
    lines: int
    unknown: int
    characters: int
    bytes: int


@dataclass(frozen=True)
class TextFacts(Facts):
    validation: Fingerprint | None
    train: TextCounts
    valid: TextCounts
    tokenizer: Fingerprint | None = None

    def __post_init__(self) -> None:
        if not ((self.train.elements and self.valid.elements) or self.imported):
            raise ValueError("train and valid: expected elements, got none")

    @property
    def imported(self) -> bool:
        """Tell if the model was trained elsewhere: its checkpoint is the source, and there is no text."""
        return not (self.train.elements or self.valid.elements)


class TextTask(Task["AutoregressiveModel"]):
    name = "text"
    help = "Train a model of a text."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Texts, UTF-8 of any size: files, patterns such as 'logs/*.gz', or - for standard input; .gz, .zst, and "
            "JSON Lines and Parquet with a column of texts. Python's built-in text by default."
        ),
        "validation": Source("File to hold out; the end of DATA by default.", "--validation"),
        "tokenizer": Source(
            "A tokenizer.json of byte-level BPE, like GPT-2's; symbols are fitted to DATA by default.", "--tokenizer"
        ),
    }
    Data = TextData
    Facts = TextFacts
    Training = TextTraining
    MODELS = MODELS
    SIZE_SCHEDULES = SIZE_SCHEDULES
    PLANNED = (*PLANNED, "validation_fraction")
    PLAIN: ClassVar[dict[str, Any]] = {"num_members": 1, "ngram_order": 1, "kneser_ney_order": 0}
    FREE: ClassVar[frozenset[str]] = Task.FREE | {"watch_gradients", "watch_every"}
    PREPARED = f"{DATA}/corpus.json"
    NEXT = ("chainrule sample {run}", "chainrule score {run} FILE --per line --sort")

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        from chainrule_app.readers.corpus import load_vocabulary

        vocabulary = load_vocabulary(self.path / VOCABULARY)
        if vocabulary.level != self.data.level:
            raise ValueError(
                f"{self.path / VOCABULARY}: the level is {vocabulary.level!r}, but {CONFIG} says "
                f"{self.data.level!r}: one of the two files was changed"
            )
        return vocabulary

    @classmethod
    def run_name(cls, request: RunConfig) -> str:
        source = request.sources["source"]
        data = "python-help" if source is None else run_word(source)
        return f"{data}-{request.data.level if request.sources['tokenizer'] is None else 'bpe'}-{request.model}"

    @classmethod
    def check_asked(cls, request: RunConfig, explicit_flags: frozenset[str]) -> None:
        training = request.training
        fitted = explicit_flags & {"--level", "--vocabulary-size", "--min-count"}
        if request.sources["tokenizer"] is not None and fitted and (request.data.level != "bpe" or len(fitted) > 1):
            raise OptionError(
                min(fitted)[2:].replace("-", "_"), f"{option('tokenizer')} defines the symbols", "leave it out"
            )
        if "--watch-every" in explicit_flags and not training.watch_gradients:
            raise OptionError("watch_every", f"requires {option('watch_gradients')}")
        if training.watch_gradients and request.data.reading == "stream" and training.chunk_length < 2:
            raise OptionError("chunk_length", f"expected at least 2 with {option('watch_gradients')}")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        super().check_config(config)
        order = config.training.kneser_ney_order
        if order == 1:
            raise OptionError("kneser_ney_order", "expected 2 to 16 symbols, or 0 for no counts, got 1")
        if getattr(config.options, "position", None) == "learned" and not (config.facts and config.facts.imported):
            context, lines = config.options.context_length, config.data.reading == "lines"
            if not lines or config.training.line_length > context:
                longest = f"lines of up to {config.training.line_length}" if lines else "a stream, which has no end"
                raise OptionError(
                    "position",
                    f"learned positions end after the {option('context_length')}, {context} symbols, got {longest}",
                    f"use rotary, or {option('reading', 'lines')} with a {option('line_length')} of at most {context}",
                )
        if config.data.split_punctuation and config.data.level != "word":
            raise OptionError(
                "split_punctuation",
                f"splits words, got {option('level', config.data.level)}",
                f"use {option('level', 'word')}",
            )
        if getattr(config.options, "adaptive_softmax", False) and config.data.level != "word":
            raise OptionError(
                "adaptive_softmax",
                f"needs symbols numbered by frequency, which {option('level', 'word')} has, "
                f"got {option('level', config.data.level)}",
                "leave it out",
            )

    @classmethod
    def resolve_reading(cls, request: RunConfig) -> RunConfig:
        from chainrule_app.tasks.text.preparing import default_fraction

        if request.sources["tokenizer"] is not None:
            request = replace(request, data=replace(request.data, level="bpe"))
        if request.data.validation_fraction is not None:
            return request
        fraction = default_fraction(request.sources["source"])
        return replace(request, data=replace(request.data, validation_fraction=fraction))

    def prepare(self, old: "TextTask | None" = None) -> dict[str, Any]:
        from chainrule_app.tasks.text.preparing import prepared

        return prepared(self, None if old is None else old.vocabulary).manifest

    def options_in_weights(self) -> dict[str, Any]:
        return {"kneser_ney_order": self.training.kneser_ney_order}

    def plan(self, explicit_flags: frozenset[str]) -> Planned:
        from chainrule_app.tasks.text.plan import plan_blocks, plan_recurrence
        from chainrule_app.tasks.text.preparing import count_ngrams

        recurrent = bool(self.MODELS[self.config.model].planned)
        planned = plan_recurrence(self) if recurrent else plan_blocks(self, explicit_flags)
        count_ngrams(TextTask(self.path, planned.config))
        return planned

    def choice(self) -> str:
        if self.config.model in self.SIZE_SCHEDULES:
            options = asdict(self.config.options)
            dropouts = (f"{name.replace('_', ' ')} {options[name]:g}" for name in DROPOUTS)
            return ", ".join([super().choice(), *dropouts])
        settled, options, duration = self.config.settled, self.config.options, self.config.duration
        size = f"{counted(options.num_layers, 'layer')} of {options.hidden_size} units, dropout {options.dropout:g}"
        if settled is None or settled.passes is None:
            return size
        passes = format_passes(settled.passes, "text")
        if settled.elements_per_second is None or duration.budget is None:
            return f"{passes}: {size}"
        speed = f"{settled.elements_per_second:,.0f} {_ELEMENT[self.data.level]}s/s here"
        return f"{speed}; {format_duration(duration.budget)} is about {passes}: {size}"

    def added_parts(self) -> Sequence[str]:
        from chainrule_app.tasks.text.preparing import fitted_order

        counts = [f"{fitted_order(self)}-gram counts"] if self.training.kneser_ney_order else []
        order = getattr(self.config.options, "ngram_order", None) or 1
        return [*counts, *([f"{order}-gram embeddings"] if order > 1 else [])]

    def build(self) -> "AutoregressiveModel":
        return self.built(vocab_size=len(self.vocabulary), eos=self.vocabulary.eos)

    def completed(self, network: "AutoregressiveModel") -> "AutoregressiveModel":
        from chainrule_app.tasks.text.preparing import with_ngrams

        return with_ngrams(self, network)

    def _unfilled(self) -> "AutoregressiveModel":
        with modes.unfilled():
            network = self.build().to_empty(device="cpu")
        return self.completed(network)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule_app.tasks.text.preparing import batches_of, corpus_of

        return batches_of(self, corpus_of(self), shard)

    def introduce(self) -> Iterable[str]:
        facts, data = self.facts, self.data
        different = f"{len(self.vocabulary):,} different, level {data.level}"
        if facts.tokenizer is not None:
            different += f", of {facts.tokenizer.name}"
        if facts.imported:
            yield f"imported from {facts.source.name} ({size_of(facts.source.bytes)}): symbols, {different}"
            return
        held_out = facts.validation.name if facts.validation else f"last {data.validation_fraction:.0%}"
        yield (
            f"{facts.source.name} ({size_of(facts.source.bytes)}), read as {data.reading}: "
            f"{_count(facts.train)} to train on, {_count(facts.valid)} held out ({held_out}), {different}"
        )
        if self.config.init is not None:
            unknown = facts.train.unknown / facts.train.elements
            yield f"starting from {self.config.init.run}; {unknown:.2%} of the symbols to train on are unknown to it"

    def observe(self) -> "Observe | None":
        if not self.training.kneser_ney_order:
            return super().observe()

        return share_of("counts", "counts of n-grams")

    def watch(self) -> "GradientProbe | None":
        if not self.training.watch_gradients:
            return None
        from chainrule.diagnostics import gradient_profile

        return gradient_profile

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        from chainrule_app.tasks.text.figures import describe_figures, text_figures

        counts = self.facts.valid
        figures = text_figures(evaluation.nats_per_element * counts.elements, asdict(counts))
        # A validation that would take too much of the run reads a part, the same each time.
        whole = evaluation.elements >= counts.elements
        part = "" if whole else f"first {evaluation.elements:,} of {counted(counts.elements, 'symbol')} of the "
        return (
            {"bits_per_element": evaluation.bits_per_element, "perplexity": evaluation.perplexity} | figures,
            f"{evaluation.bits_per_element:.4f} bits ({evaluation.nats_per_element:.4f} nats) per "
            f"{_ELEMENT[self.data.level]} on the {part}held-out text, perplexity {evaluation.perplexity:.4g}; "
            f"{describe_figures(figures, of_characters=self.data.level == 'char')}",
        )

    def more_facts(self) -> dict[str, Any]:
        return {"vocabulary_size": len(self.vocabulary)}

    @property
    def basis(self) -> Basis:
        digest = sha256(dumps(self.vocabulary.to_json(), sort_keys=True).encode()).hexdigest()
        level = self.data.level
        tokens = f"{level} level, {counted(len(self.vocabulary), 'symbol')} ({digest[:8]}), {self.data.reading}"
        return Basis("symbol", tokens=tokens)

    def held_out_sources(self) -> dict[str, Any]:
        sources = super().held_out_sources()
        sources.pop("seed", None)  # the tail is held out
        sources.pop("tokenizer", None)  # which changes the symbols, not the text
        return sources

    def held_out(self) -> LikelihoodRecord | None:
        entry, counts = super().held_out(), self.facts.valid
        if entry is None:
            return None
        return replace(entry, bytes=round(counts.bytes * entry.elements / counts.elements))

    def checked_rows(self) -> CheckedRows:
        from chainrule_app.tasks.text.preparing import own_window

        x, lengths, _ = own_window(self, _CHECKED_ROWS, _CHECKED_ELEMENTS)
        return CheckedRows(self.model(), x, lengths=lengths)

    def codec(self) -> FileCodec:
        from chainrule_app.tasks.text.compression import TextCodec

        return TextCodec(self.vocabulary, self.data.reading, _ELEMENT[self.data.level])


def _count(part: TextCounts) -> str:
    lines = f" in {counted(part.lines, 'line')}" if part.lines else ""
    return f"{counted(part.elements, 'symbol')}{lines}"
