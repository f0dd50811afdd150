"""Music: MIDI files become piano rolls, and an RNN-MADE predicts each frame of 88 keys from those before it.

data/music.json                  counts, tempo, fingerprints
data/train.frames, valid.frames  the keys of each frame
data/train.pieces, valid.pieces  where pieces begin
preview.mid                      drawn at the last validation
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from chainrule._app.heavy import modes, np, torch
from chainrule._app.tasks.capabilities import Checks, Inspects, Samples, Scores
from chainrule._app.tasks.config import (
    Counts,
    Facts,
    Fingerprint,
    OptimisationOptions,
    RunConfig,
    SkippedFile,
    SplitOptions,
    within,
)
from chainrule._app.tasks.display import counted
from chainrule._app.tasks.likelihood_record import Basis
from chainrule._app.tasks.model import Model
from chainrule._app.tasks.music import verbs
from chainrule._app.tasks.output import write_piece
from chainrule._app.tasks.run_directory import DATA
from chainrule._app.tasks.size_schedule import SizeSchedule, describe_passes, limit_passes
from chainrule._app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data._music import Rolls
    from chainrule.models import RNNMADE
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training._validation import OnValidation

_PREVIEW, _PREVIEW_FRAMES = "preview.mid", 64
_VALIDATION_ROWS = 8
_MOST_PASSES = 100.0
_MOSTLY_UP = -3.0  # logit of a key that is down one frame in twenty, from which training starts


@dataclass(frozen=True)
class MusicData(SplitOptions):
    """Options for reading MIDI files as frames of keys."""

    frames_per_quarter: int = within(4, 1, 48)
    """Frames of a quarter note, a divisor of 480: 4 for sixteenth notes, 12 for triplets too."""
    semitones: int = within(5, 0, 24)
    """Maximum random transposition of a training piece, in semitones, drawn each time it is read."""
    skip_bad: bool = False
    """Skip files that cannot be read."""

    def __post_init__(self) -> None:
        from chainrule.data._midi import TICKS

        super().__post_init__()
        if TICKS % (frames := self.frames_per_quarter):
            raise ValueError(f"--frames-per-quarter: expected a divisor of {TICKS}, such as 4, 8 or 12, got {frames}")


@dataclass(frozen=True)
class MusicTraining(OptimisationOptions):
    """Training options of a model of music: a row is hundreds of frames."""

    batch_size: int = within(4, 1, 1 << 24)
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: float = within(0.02, 0.0, 1e3)
    """Peak learning rate; 0.003 by default with AdamW."""
    chunk_length: int = within(128, 1, 1 << 17)
    """Frames per row: a part of a longer piece."""


@dataclass(frozen=True)
class MusicCounts(Counts):
    pieces: int
    frames: int


@dataclass(frozen=True)
class MusicFacts(Facts):
    validation: Fingerprint | None
    quarters_per_minute: int
    beyond: int
    skipped: list[SkippedFile]
    train: MusicCounts
    valid: MusicCounts

    def __post_init__(self) -> None:
        if not 4 <= self.quarters_per_minute <= 1000:
            raise ValueError(f"quarters_per_minute: expected from 4 to 1000, got {self.quarters_per_minute}")


class MusicTask(Task["RNNMADE"], Scores, Samples, Inspects, Checks):
    name = "music"
    help = "Train an RNN-MADE on MIDI files, read as frames of the 88 keys of a piano."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of MIDI files (mid, midi), a tar or zip archive of them, or one file.", needed="MIDI files"
        ),
        "validation": Source("MIDI files to hold out; a random part of DATA by default.", "--validation"),
    }
    Data, Facts, Training = MusicData, MusicFacts, MusicTraining
    MODELS: ClassVar[dict[str, Model]] = {"rnn-made": Model("RNNMADE", hidden=("num_features",), dropout=0.3)}
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {"rnn-made": {"learning_rate": {"adamw": 3e-3}}}
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "rnn-made": SizeSchedule("frames", ({"hidden_size": 128},), passes=30)
    }
    PREPARED = f"{DATA}/music.json"
    NEXT = ("chainrule sample {run} -n 3 --out song.mid", "chainrule score {run} {source} --sort")
    Scoring, score = verbs.MusicScoring, verbs.score_music
    Sampling, sample = verbs.MusicSampling, verbs.sample_music
    FILES = (".mid", ".midi")
    Inspection, inspect = verbs.MusicInspection, verbs.inspect_music
    writes_page = False
    CHECKED = (2, 6)

    @cached_property
    def music(self) -> "dict[str, Rolls]":
        from chainrule.data._music import open_music

        return open_music(self.path / DATA)

    @property
    def rate(self) -> int:
        return int(self.data.frames_per_quarter)

    def seconds(self, frames: float, tempo: int | None = None) -> float:
        return frames / self.rate * 60 / (tempo or self.facts.quarters_per_minute)

    def prepare(self, old: "MusicTask | None" = None) -> dict[str, Any]:
        from chainrule.data._music import prepare_music

        data = self.data
        if old is not None and old.data.frames_per_quarter != data.frames_per_quarter:
            raise ValueError(f"--from: {old.path} was trained with --frames-per-quarter {old.data.frames_per_quarter}")
        return prepare_music(
            self.source,
            self.path / DATA,
            frames_per_quarter=data.frames_per_quarter,
            validation=self.config.sources["validation"],
            validation_fraction=data.validation_fraction,
            skip_bad=data.skip_bad,
            seed=self.training.seed,
        )

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        from chainrule.data._music import MidiFiles

        assert path is not None
        return MidiFiles(path).fingerprint()

    def plan(self, explicit_flags: frozenset[str]) -> RunConfig:
        """Limit the passes over the pieces, which are soon overfitted."""
        config = super().plan(explicit_flags)
        if config.duration.budget is None:
            return config
        run = MusicTask(self.path, config)
        model, batches = run.new_model(config.training.seed), run.batches((0, 1))[0]
        frames, settled = self.facts.train.frames // batches.steps_per_epoch, config.settled
        return limit_passes(
            config, model, batches, _MOST_PASSES, elements=frames, options=settled.options if settled else []
        )

    def choice(self) -> str:
        return f"{describe_passes(self.config, 'frames', 'pieces')}: hidden size {self.config.options.hidden_size}"

    def build(self) -> "RNNMADE":
        model: RNNMADE = self.built()
        assert model.made.output.bias is not None
        torch.nn.init.constant_(model.made.output.bias, _MOSTLY_UP)
        return model

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data._music import music_batches, music_evaluation

        training = self.training
        rows, length, semitones = training.batch_size, training.chunk_length, self.data.semitones
        return (
            music_batches(self.music["train"], rows, length, semitones, training.seed, shard),
            lambda: music_evaluation(self.music["valid"], _VALIDATION_ROWS),
        )

    def introduce(self) -> Iterable[str]:
        facts, minutes = self.facts, self.seconds(self.facts.train.frames) / 60
        yield (
            f"{facts.source.name}, read as music: {counted(facts.train.pieces, 'piece')} ({minutes:,.1f} min) to train "
            f"on, {facts.valid.pieces:,} held out, "
            f"{self.rate} frames a quarter note, {facts.quarters_per_minute} quarter notes a minute"
        )
        if facts.beyond:
            yield f"left out: {counted(facts.beyond, 'note')} beyond the keys of a piano"
        for bad in facts.skipped:
            yield f"skipped: {bad.reason}"

    def on_validation(self) -> "OnValidation":
        from chainrule.data import png
        from chainrule.decoding._sample_paths import draw_for
        from chainrule.training._validation import Preview

        def preview(trained: Any, step: int, seconds: float) -> Preview:
            generator = torch.Generator(modes.device_of(trained)).manual_seed(step)
            roll = draw_for(trained.stream(1, generator=generator), _PREVIEW_FRAMES, seconds)[0].cpu().numpy()
            words = write_piece(self.path / _PREVIEW, roll, self.playing())
            shades = np.where(roll.T[::-1] > 0, 0, 255).astype(np.uint8)  # time to the right, pitch upwards
            return Preview(f"{words} {_PREVIEW}", png(shades.repeat(4, 0).repeat(4, 1)))

        return preview

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        nats = evaluation.nats_per_element
        return {"nats_per_frame": nats}, f"{nats:.4f} nats per frame on the held-out pieces"

    @property
    def basis(self) -> Basis:
        return Basis("frame", f"88 keys, {self.rate} frames a quarter note")

    def playing(self, tempo: int | None = None) -> dict[str, int]:
        """Return what a piano roll needs to be played at the right speed."""
        return {"frames_per_quarter": self.rate, "quarters_per_minute": tempo or self.facts.quarters_per_minute}
