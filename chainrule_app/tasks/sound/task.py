"""Sounds: samples become levels, and a WaveNet predicts each from those before it.

data/sounds.json                          rate, labels, counts, fingerprints
data/train.tokens, valid.tokens           a level for each sample
data/train.clips, .labels, valid. ...     where clips begin, and what they are
preview.wav                               drawn at the last validation
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.heavy import modes, torch
from chainrule_app.printing import counted, quoted
from chainrule_app.readers import sounds as sound_reader
from chainrule_app.tasks.config import CheckedOptions, Counts, Facts, Fingerprint, Model, RunConfig, SkippedFile
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import BatchSize, Components, LearningRate, OptimisationOptions, SplitOptions
from chainrule_app.tasks.output import loudness_line
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.size_schedule import SizeSchedule
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.models import WaveNet
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.sounds.levels import SoundLevels
    from chainrule_app.readers.sounds.prepare import Labelling, Sounds
    from chainrule_app.tasks.preview import OnValidation

_DEFAULT_LEVELS = {"mu": 256, "linear": 65536}
_MOST_CATEGORIES, _DEFAULT_COMPONENTS = 1024, 10
_PREVIEW, _PREVIEW_SECONDS = "preview.wav", 0.5
_VALIDATION_ROWS = 8


@dataclass(frozen=True)
class SoundData(SplitOptions):
    """Options for turning sounds into sequences of levels."""

    rate: Annotated[int, Range(100, 1_000_000)] | None = None
    """Samples per second; by default the files' lowest rate, at most 16000. Other files are resampled."""
    law: Literal["mu", "linear"] = "mu"
    """Spacing of the levels: mu is finer for quiet sounds, as in telephony; linear is even."""
    levels: Annotated[int, Range(2, 65536)] | None = None
    """Levels of a sample; 256 (mu) or 65536 (linear) by default. Above 1024 a mixture of --components (10) predicts."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """Labels that condition the sounds: their folders, or none; auto uses folders if every file is in one."""
    label_pattern: str | None = None
    """Pattern of the label in file names, such as '{label}_*' for 7_jackson_12.wav; replaces folders."""
    sequences: Literal["auto", "clips", "stream"] = "auto"
    """Read each file as a sequence, or all files as one; auto decides by their length."""
    skip_bad: bool = False
    """Skip files that cannot be read."""


@dataclass(frozen=True)
class WaveNetOptions(CheckedOptions):
    channels: Annotated[int, Range(1, 4096)] = 48
    """Features between the layers."""
    blocks: Annotated[int, Range(1, 64)] = 2
    """How many times the dilations start at 1."""
    layers_per_block: Annotated[int, Range(1, 20)] = 9
    """Layers of a block, with dilations 1, 2, 4 and so on."""
    kernel_size: Annotated[int, Range(2, 16)] = 2
    """Taps of each convolution."""
    skip_channels: Annotated[int, Range(1, 16384)] = 128
    """Features in which the layers' outputs are summed."""
    components: Components | None = None
    """Components of a mixture of logistics, which replaces the categorical distribution."""


@dataclass(frozen=True)
class SoundTraining(OptimisationOptions):
    """Training options of a sound model: a row is thousands of samples."""

    batch_size: BatchSize = 2
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 1.2e-2
    """Peak learning rate; 0.003 by default with AdamW."""
    chunk_length: Annotated[int, Range(1, 1 << 24)] = 8192
    """Samples per row: a piece of a longer clip, or of a stream."""


@dataclass(frozen=True)
class SoundCounts(Counts):
    clips: int
    samples: int


@dataclass(frozen=True)
class SoundFacts(Facts):
    validation: Fingerprint | None
    rate: int
    rates: dict[str, int]  # files of each rate
    law: Literal["mu", "linear"]
    levels: int
    sequences: Literal["clips", "stream"]
    labels: list[str]
    silent: int
    clipped: int
    skipped: list[SkippedFile]
    train: SoundCounts
    valid: SoundCounts

    def __post_init__(self) -> None:
        for name, value, most in (("rate", self.rate, 1_000_000), ("levels", self.levels, 65536)):
            if not 2 <= value <= most:
                raise ValueError(f"{name}: expected a whole number from 2 to {most}, got {value}")


class SoundTask(Task["WaveNet"]):
    name = "sound"
    help = "Train a WaveNet on sounds. Needs two packages: pip install soundfile scipy."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of sounds (wav, flac, ogg, mp3, aif), a tar or zip archive of them, or one file.", needed="sounds"
        ),
        "validation": Source("Sounds to hold out; a random part of DATA by default.", "--validation"),
    }
    Data = SoundData
    Facts = SoundFacts
    Training = SoundTraining
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {"wavenet": {"learning_rate": {"adamw": 3e-3}}}
    APPLE = True
    MODELS: ClassVar[dict[str, Model]] = {"wavenet": Model("WaveNet", WaveNetOptions)}
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "wavenet": SizeSchedule(
            "samples", ({"channels": 32, "skip_channels": 96}, {"channels": 20, "skip_channels": 64}), passes=1
        )
    }
    PREPARED = f"{DATA}/sounds.json"
    FILES = (".wav",)
    CHECKED = (3, 24)

    @property
    def rate(self) -> int:
        return self.facts.rate

    @property
    def labels(self) -> list[str]:
        return self.facts.labels

    def label(self, name: str) -> int:
        from chainrule_app.readers.sounds.prepare import label_number

        if not self.labels:
            raise OptionError(
                "label", "this run was trained without labels", f"leave it out, or train with {option('label_pattern')}"
            )
        return label_number(self.labels, name)

    @property
    def levels(self) -> "SoundLevels":
        return sound_reader.make_levels(self.facts.law, self.facts.levels)

    @property
    def labelling(self) -> "Labelling":
        return sound_reader.Labelling(self.data.label_pattern)

    @property
    def mean_seconds(self) -> float:
        train = self.facts.train
        return train.samples / train.clips / self.rate

    def sounds(self) -> "Sounds":
        return sound_reader.open_sounds(self.path / DATA)

    @classmethod
    def resolve_reading(cls, request: RunConfig) -> RunConfig:
        levels, components = request.data.levels or _DEFAULT_LEVELS[request.data.law], request.options.components
        if components is None and levels > _MOST_CATEGORIES:
            components = _DEFAULT_COMPONENTS
        options = replace(request.options, components=components)
        return replace(request, data=replace(request.data, levels=levels), options=options)

    def prepare(self, old: "SoundTask | None" = None) -> dict[str, Any]:
        from chainrule_app.readers.sounds.prepare import prepare_sounds

        return prepare_sounds(
            self.source,
            self.path / DATA,
            **asdict(self.data) | ({} if old is None else {"rate": old.rate, "sequences": old.facts.sequences}),
            like=None if old is None else old.labels,
            longest_clip=self.training.chunk_length,
            validation=self.config.sources["validation"],
            seed=self.training.seed,
        ).manifest

    @classmethod
    def fingerprint(cls, path: Any) -> dict[str, Any]:
        return sound_reader.Collection(path).fingerprint()

    def build(self) -> "WaveNet":
        return self.built(levels=self.facts.levels, num_classes=len(self.labels) or None)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data import StreamBatches
        from chainrule_app.readers.sounds.prepare import clip_batches, clip_evaluation

        sounds, training = self.sounds(), self.training
        rows, length, seed = training.batch_size, training.chunk_length, training.seed
        if self.facts.sequences == "stream":
            return (
                StreamBatches(sounds.train, rows, length, seed, shard),
                lambda: StreamBatches.evaluation(sounds.valid, _VALIDATION_ROWS, length),
            )
        return (
            clip_batches(sounds.train, rows, length, sounds.train_labels, seed, shard),
            lambda: clip_evaluation(sounds.valid, _VALIDATION_ROWS, length, sounds.valid_labels),
        )

    def introduce(self) -> Iterable[str]:
        yield from _found(self.facts)
        seen = self.new_model(0).receptive_field
        yield f"each sample is predicted from the {seen:,} before it, {1000 * seen / self.rate:.0f} ms"

    def on_validation(self) -> "OnValidation":
        def preview(trained: Any, step: int, seconds: float) -> str:
            from chainrule_app.readers.sounds.sound_file import write_wav
            from chainrule_app.tasks.preview import draw_for

            device = modes.device_of(trained)
            label = None if not self.labels else torch.tensor([step % len(self.labels)], device=device)
            length = max(round(min(_PREVIEW_SECONDS, self.mean_seconds) * self.rate), 1)
            generator = torch.Generator(device).manual_seed(step)
            drawn = draw_for(trained.stream(1, label, generator=generator), length, seconds)
            amplitudes = self.levels.decode(drawn[0].cpu().numpy())
            write_wav(self.path / _PREVIEW, amplitudes, self.rate)
            name = "" if label is None else f"{self.labels[int(label)]}: "
            return f"{name}{loudness_line(amplitudes)} {_PREVIEW}"

        return preview

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        samples, bits = self.facts.valid.samples, evaluation.bits_per_element
        part = (
            ""
            if evaluation.elements >= samples
            else f"first {evaluation.elements:,} of {counted(samples, 'sample')} of the "
        )
        return {"bits_per_sample": bits}, f"{bits:.4f} bits per sample on the {part}held-out sounds"

    def next_steps(self) -> Sequence[str]:
        path, label = quoted(self.path), f" --label {quote(self.labels[0])}" if self.labels else ""
        return [
            f"chainrule sample {path} -n 3 --out new.wav{label}",
            f"chainrule score {path} FILES --sort",
        ]

    def more_facts(self) -> dict[str, Any]:
        return {"receptive_field": self.new_model(0).receptive_field}

    @property
    def basis(self) -> Basis:
        facts = self.facts
        condition = "the label" if self.labels else ""
        return Basis("sample", f"{facts.levels:,} {facts.law} levels at {self.rate:,} Hz", given=condition)


def _found(facts: SoundFacts) -> Iterable[str]:
    """Describe the prepared sounds line by line."""
    train, valid, rate = facts.train, facts.valid, facts.rate
    law = "μ-law" if facts.law == "mu" else "linear"
    yield (
        f"{facts.source.name}, read as sound, {facts.sequences}: {train.clips:,} "
        f"({train.samples / rate:,.1f} s) to train on, {valid.clips:,} ({valid.samples / rate:,.1f} s) held "
        f"out, at {rate:,} Hz in {facts.levels:,} {law} levels"
    )
    if facts.labels:
        some = ", ".join(facts.labels[:12]) + (", ..." if len(facts.labels) > 12 else "")
        yield f"{counted(len(facts.labels), 'label')}: {some}"
    others = {file_rate: count for file_rate, count in facts.rates.items() if int(file_rate) != rate}
    if others:
        yield "resampled: " + ", ".join(
            f"{counted(count, 'file')} of {int(file_rate):,} Hz" for file_rate, count in others.items()
        )
    if facts.silent:
        yield f"silent: {counted(facts.silent, 'clip')} with one amplitude only"
    if facts.clipped:
        yield f"clipped: {counted(facts.clipped, 'sample')} beyond full scale"
    for bad in facts.skipped:
        yield f"skipped: {bad.reason}"
