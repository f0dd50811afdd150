"""Texts: a file becomes symbols, and a language model reads them one at a time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule.option_error import OptionError, option
from chainrule_app.printing import counted, format_duration, format_passes, progress_bars, size_of
from chainrule_app.readers.sources import open_source
from chainrule_app.tasks.baseline import Baseline, likelihoods
from chainrule_app.tasks.config import Counts, Facts, Fingerprint, Planned, RunConfig
from chainrule_app.tasks.declaration import run_word
from chainrule_app.tasks.run_directory import CONFIG, DATA, NGRAMS, VOCABULARY
from chainrule_app.tasks.task import Shard, Source, Task
from chainrule_app.tasks.text.options import (
    DROPOUTS,
    MODELS,
    PLANNED,
    SIZE_SCHEDULES,
    TextData,
    TextTraining,
)

if TYPE_CHECKING:
    from chainrule.training import Findings
    from chainrule_app.tasks.preview import Observe

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.training import GradientProbe, TrainingBatches, ValidationBatches
    from chainrule_app.readers.corpus import Corpus
    from chainrule_app.tasks.preview import Observe, OnValidation

ELEMENT = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}
_SAMPLE_LENGTH = {"char": 200, "byte": 200, "word": 40, "bpe": 60}
_EVALUATION_ROWS = 16
ORDERS = {"char": 12, "byte": 12, "word": 5, "bpe": 5}
_BEGINNING = 1 << 16  # bytes of a text that tell if it is a log


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
    PLANNED = (*PLANNED, "validation_fraction", "reading")
    PLAIN: ClassVar[dict[str, Any]] = {"num_members": 1, "ngram_order": 1, "kneser_ney_order": 0}
    FREE: ClassVar[frozenset[str]] = Task.FREE | {"watch_gradients", "watch_every"}
    PREPARED = f"{DATA}/corpus.json"
    NEXT = ("chainrule sample {run}", "chainrule score {run} FILE --per line --sort")

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        from chainrule.data import Vocabulary

        vocabulary = Vocabulary.load(self.path / VOCABULARY)
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
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        training = request.training
        fitted = given & {"level", "vocabulary_size", "min_count"}
        if request.sources["tokenizer"] is not None and fitted and (request.data.level != "bpe" or len(fitted) > 1):
            raise OptionError(min(fitted), f"{option('tokenizer')} defines the symbols", "leave it out")
        if "watch_every" in given and not training.watch_gradients:
            raise OptionError("watch_every", f"requires {option('watch_gradients')}")
        if training.watch_gradients and request.data.reading != "lines" and training.chunk_length < 2:
            raise OptionError("chunk_length", f"expected at least 2 with {option('watch_gradients')}")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        order = config.training.kneser_ney_order
        if order == 1:
            raise OptionError("kneser_ney_order", "expected 2 to 16 symbols, or 0 for no counts, got 1")
        if not (config.facts and config.facts.imported):
            check_positions(config)
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
        from chainrule_app.readers.corpus import is_log

        if request.sources["tokenizer"] is not None:
            request = replace(request, data=replace(request.data, level="bpe"))
        source, data = open_source(request.sources["source"]), request.data
        if data.reading is None:
            with source.open() as file:
                beginning = file.read(_BEGINNING).decode("utf-8", "replace")
            data = replace(data, reading="lines" if is_log(beginning) else "stream")
        if data.validation_fraction is None:
            # 1% of long texts, up to 5% of short ones: about 10,000 bytes.
            data = replace(data, validation_fraction=max(0.01, min(0.05, 10_000 / source.size)))
        return replace(request, data=data)

    def prepare(self, old: "TextTask | None" = None) -> dict[str, Any]:
        from chainrule_app.readers.corpus import prepare_corpus

        options, sources = asdict(self.data), self.config.sources
        del options["text_column"]  # of the file that was unpacked
        with progress_bars() as begin:
            bars: dict[tuple[str, int], tuple[int, Callable[[int], None]]] = {}  # one per file and stage

            def progress(stage: str, done: int, total: int) -> None:
                before, advance = bars.get((stage, total)) or (0, begin(total, stage))
                advance(done - before)
                bars[stage, total] = done, advance

            corpus = prepare_corpus(
                sources["source"],
                self.path / DATA,
                validation=sources["validation"],
                tokenizer=sources["tokenizer"],
                vocabulary=None if old is None else old.vocabulary,
                progress=progress,
                **options,
            )
        if not (self.path / VOCABULARY).exists():
            corpus.vocabulary.save(self.path / VOCABULARY)
        elif len(corpus.vocabulary) != len(self.vocabulary):
            raise ValueError(f"{self.path / VOCABULARY}: does not match the text: it was changed since the run began")
        return corpus.manifest

    def corpus(self) -> "Corpus":
        from chainrule_app.readers.corpus import open_corpus

        return open_corpus(self.path / DATA)

    def options_in_weights(self) -> dict[str, Any]:
        return {"kneser_ney_order": self.training.kneser_ney_order}

    def plan(self, given: frozenset[str]) -> Planned:
        from chainrule_app.tasks.text.plan import count_ngrams, plan_recurrence
        from chainrule_app.tasks.text.plan_blocks import plan_blocks

        recurrent = bool(self.MODELS[self.config.model].planned)
        planned = plan_recurrence(self) if recurrent else plan_blocks(self, given)
        count_ngrams(type(self)(self.path, planned.config))
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
        speed = f"{settled.elements_per_second:,.0f} {ELEMENT[self.data.level]}s/s here"
        return f"{speed}; {format_duration(duration.budget)} is about {passes}: {size}"

    def added_parts(self) -> Sequence[str]:
        counts = [f"{fitted_order(self)}-gram counts"] if self.training.kneser_ney_order else []
        order = getattr(self.config.options, "ngram_order", None) or 1
        return [*counts, *([f"{order}-gram embeddings"] if order > 1 else [])]

    def build(self) -> "AutoregressiveModel":
        return self.built(vocab_size=len(self.vocabulary), eos=self.vocabulary.eos)

    def completed(self, network: "AutoregressiveModel") -> "AutoregressiveModel":
        """Average the network with n-gram counts, if the run has them."""
        return with_ngrams(self, network) if self.training.kneser_ney_order else network

    def _unfilled(self) -> "AutoregressiveModel":
        from chainrule import modes

        with modes.unfilled():
            network = self.build().to_empty(device="cpu")
        return self.completed(network)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data import LineBatches, StreamBatches

        corpus, training = self.corpus(), self.training
        rows, length, seed = training.batch_size, training.chunk_length, training.seed
        if corpus.reading == "lines":
            return (
                LineBatches(corpus.train, rows, training.line_length, seed, shard),
                lambda: LineBatches.evaluation(corpus.valid, rows),
            )
        end = positions_end(self.config)  # where a state that goes on would find no position
        return (
            StreamBatches(corpus.train, rows, length, seed, shard, carry=end is None),
            lambda: StreamBatches.evaluation(corpus.valid, _EVALUATION_ROWS, end or 4 * length, carry=end is None),
        )

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

    def on_validation(self) -> "OnValidation":
        from chainrule_app.tasks.text.sampling import Sampler

        vocabulary = self.vocabulary
        ends = vocabulary.eos if self.data.reading == "lines" else None
        length = _SAMPLE_LENGTH[self.data.level]
        length = min(length, positions_end(self.config) or length)

        def sample(trained: Any, step: int, seconds: float) -> str:
            sampler = Sampler(trained, vocabulary, eos=ends)
            return sampler.texts(1, vocabulary.begin(""), length, step)[0][0]

        return sample

    def observe(self) -> "Observe | None":
        if not self.training.kneser_ney_order:
            return super().observe()

        return share_of("counts", "counts of n-grams")

    def baseline(self, model: Any, seconds: float) -> Baseline | None:
        """Compare with the n-gram counts alone, if the run has them."""
        from chainrule.models import CalibratedMixture

        if not isinstance(model, CalibratedMixture):
            return None
        own, counts = likelihoods(model, model.companion, lambda: self.batches((0, 1))[1](), seconds)
        return Baseline(f"Kneser–Ney {fitted_order(self)}-grams", counts, own, f"nats per {self.basis.unit}")

    def watch(self) -> "GradientProbe | None":
        if not self.training.watch_gradients:
            return None
        from chainrule.diagnostics import gradient_profile

        return gradient_profile


def _count(part: TextCounts) -> str:
    lines = f" in {counted(part.lines, 'line')}" if part.lines else ""
    return f"{counted(part.elements, 'symbol')}{lines}"


def fitted_order(run: "TextTask") -> int:
    """Return the n-gram order of a run's tables; the configured one if the tables cannot be read."""
    from chainrule.layers import KneserNey
    from chainrule.tensor_files import read_tensors

    configured: int = run.training.kneser_ney_order
    try:
        return KneserNey.from_tables(read_tensors(run.path / NGRAMS)[0]).order
    except (OSError, ValueError):  # `with_ngrams` says why
        return configured


def with_ngrams(run: "TextTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """Average the network with the n-gram counts of a run."""
    from chainrule.layers import KneserNey
    from chainrule.models import CalibratedMixture, NgramLM
    from chainrule.tensor_files import read_tensors

    order, path = run.training.kneser_ney_order, run.path / NGRAMS
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, but the run uses n-gram counts: restore it, or train again")
    tables, record = read_tensors(path)
    try:
        if not ngrams_record(run).items() <= record.items():
            raise ValueError("expected the n-grams of the run's text, got n-grams of another text")
        ngrams = KneserNey.from_tables(tables)
        if ngrams.vocab_size != len(run.vocabulary) or ngrams.order > order:
            raise ValueError(
                f"expected n-grams of at most {order} out of {len(run.vocabulary):,} symbols, "
                f"got {ngrams.order} out of {ngrams.vocab_size:,}"
            )
    except ValueError as error:
        raise ValueError(f"{path}: {error}: restore it from a copy, or train again") from None
    return CalibratedMixture(network, NgramLM(ngrams))


def ngrams_record(run: "TextTask") -> dict[str, Any]:
    """Describe the text whose n-grams a run counts."""
    facts, reading = run.facts, run.data.reading
    return {"kind": "n-grams", "source": facts.source.sha256, "train": asdict(facts.train), "reading": reading}


def share_of(name: str, description: str) -> "Observe":
    """Observe the companion's weight in a `CalibratedMixture`."""

    def share(trained: Any) -> "Findings":
        from chainrule.training import Findings

        value = float(trained.share)
        return Findings({f"share_of_{name}": value}, f"{description}: {value:.0%} of the mean")

    return share


def positions_end(config: RunConfig) -> int | None:
    """Return the number of learned positions of a run; None for other positions."""
    learned = getattr(config.options, "position", None) == "learned"
    return config.options.context_length if learned else None


def check_positions(config: RunConfig) -> None:
    """Refuse sequences with more elements than learned positions.

    A stream has no end. A run that starts from other weights reads it in chunks, each from the first position on.
    """
    end = positions_end(config)
    if end is None:
        return
    endless = config.data.reading != "lines" and config.init is None
    name = "line_length" if config.data.reading == "lines" or endless else "chunk_length"
    longest = getattr(config.training, name)
    if endless or longest > end:
        got = "a stream, which has no end" if endless else f"{option(name)} {longest}"
        limit = f"{option(name)} of at most {end}"
        raise OptionError(
            "position",
            f"learned positions end after the {option('context_length')}, {end} symbols, got {got}",
            f"use a {limit}" if config.init else f"use rotary, or {option('reading', 'lines')} with a {limit}",
        )
