"""Music: MIDI files become piano rolls, and an RNN-MADE predicts each frame of 88 keys from those before it.

data/music.json                  counts, tempo, fingerprints
data/train.frames, valid.frames  the keys of each frame
data/train.pieces, valid.pieces  where pieces begin
preview.mid                      drawn at the last validation
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.option_error import OptionError, option
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule_app.heavy import modes, music_data, np, torch
from chainrule_app.printing import counted
from chainrule_app.readers.members import read_each
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.config import CheckedOptions, Counts, Facts, Fingerprint, Model, Planned, SkippedFile, Switch
from chainrule_app.tasks.frequencies import place_frequencies
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import (
    BatchSize,
    Cell,
    LearningRate,
    OptimisationOptions,
    SplitOptions,
    TemperatureOptions,
)
from chainrule_app.tasks.output import inside, inspect_again, write_piece
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.size_schedule import SizeSchedule, describe_passes, limit_passes
from chainrule_app.tasks.tally import Tally
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import RNNMADE
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.members import Member
    from chainrule_app.readers.music import Roll, Rolls
    from chainrule_app.readers.piano_rolls import HeldRoll
    from chainrule_app.tasks.baseline import Baseline
    from chainrule_app.tasks.preview import OnValidation

_PREVIEW, _PREVIEW_FRAMES = "preview.mid", 64
_VALIDATION_ROWS = 8
_MOST_PASSES = 100.0
_MOSTLY_UP = -3.0  # logit of a key that is down one frame in twenty, from which training starts


@dataclass(frozen=True)
class MusicData(SplitOptions):
    """Options for reading MIDI files as frames of keys."""

    frames_per_quarter: Annotated[int, Range(1, 48)] = 4
    """Frames of a quarter note: 4 for sixteenth notes, 12 for triplets too."""
    semitones: Annotated[int, Range(0, 24)] = 5
    """Maximum random transposition of a training piece, in semitones, drawn each time it is read."""
    skip_bad: bool = False
    """Skip files that cannot be read."""


@dataclass(frozen=True)
class RNNMADEOptions(CheckedOptions):
    hidden_size: Size = 256
    """Units of each recurrent layer."""
    cell: Cell = "lstm"
    """Recurrence over the frames."""
    num_layers: Layers = 1
    """Recurrent layers."""
    dropout: Probability = 0.3
    """Probability of zeroing in training, of what the recurrence reads and gives, and of the MADE's hidden units."""
    direct: bool = True
    """Connect each note to later ones past the MADE's hidden layers too."""


@dataclass(frozen=True)
class MusicTraining(OptimisationOptions):
    """Training options of a model of music: a row is hundreds of frames."""

    batch_size: BatchSize = 4
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 0.02
    """Peak learning rate; 0.003 by default with AdamW."""
    chunk_length: Annotated[int, Range(1, 1 << 17)] = 128
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


_CHUNK = 1024  # frames scored in one pass
_TOGETHER = 64  # pieces drawn in one batch


@dataclass(frozen=True)
class MusicSampling(TemperatureOptions):
    """Draw pieces of music from a trained model, each as a MIDI file."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "n": "Number of pieces.",
        "out": "The file, sample.mid by default; several pieces become sample-1.mid, sample-2.mid and so on.",
        "json": "Print one JSON object per piece, with its seconds.",
    }

    seconds: Annotated[float, Range(0.0, 36_000.0)] | None = None
    """Length of each piece, including the prompt; by default the mean of the training pieces, after the prompt."""
    tempo: Annotated[int, Range(4, 1000)] | None = None
    """Quarter notes per minute; by default the median of the training files."""
    prompt: Path | None = None
    """MIDI file with which each piece begins."""
    top_p: float | None = None
    """Ignore what is less likely than 1 - p for a key: to be down, or up."""


@dataclass(frozen=True)
class MusicScoring:
    """Score music: nats and bits per frame of each MIDI file, exact under the model, and its most surprising moment."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder or archive of MIDI files, or one file.",
    }

    skip_bad: Switch = False
    """Skip files that cannot be read."""


def _rolls(run: "MusicTask", files: "Iterable[Member | HeldRoll]") -> "Iterator[Roll]":
    return (music_data.read_piece(file, run.rate).roll for file in files)


def sample_music(run: "MusicTask", n: int, options: MusicSampling, *, seed: int, device: str) -> Result:
    """Draw n pieces: a piano roll (T, 88) of 0 and 1 each."""
    from chainrule.heads import Categorical

    Categorical.check_filters(options.temperature, None, options.top_p)
    prompt = None if options.prompt is None else _prompt(run, options.prompt)
    length, model = _length(run, options, 0 if prompt is None else prompt.shape[1]), run.model(device)

    def rows() -> Iterator[Sequence[Any]]:
        generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
        for start in range(0, n, _TOGETHER):
            drawn = model.sample(
                min(_TOGETHER, n - start), length=length, prefix=prompt,
                temperature=options.temperature, top_p=options.top_p, generator=generator,
            )  # fmt: skip
            for roll in drawn.cpu().numpy().astype(np.uint8):
                yield roll, run.seconds(length, options.tempo)

    about = {**run.playing(options.tempo), "seed": seed}
    return Result([Column("piece"), Column("seconds", 2)], rows(), about=about, form="music")


def _prompt(run: "MusicTask", path: Path) -> "Tensor":
    files = music_data.MidiFiles(path).files
    if len(files) != 1:
        raise OptionError("prompt", f"expected one MIDI file, got {len(files)} in {path}")
    (roll,) = _rolls(run, files)
    return torch.from_numpy(roll).float().unsqueeze(0)


def _length(run: "MusicTask", options: MusicSampling, prompt: int) -> int:
    train, seconds = run.facts.train, options.seconds
    if seconds is None:
        return prompt + max(round(train.frames / train.pieces), 1)
    length = round(seconds / run.seconds(1, options.tempo))
    if length <= prompt:
        began = f", more than the {run.seconds(prompt, options.tempo):.2f} of the prompt" if prompt else ""
        raise OptionError("seconds", f"expected a length of at least one frame{began}, got {seconds:g}")
    return length


def score_music(run: "MusicTask", data: str, options: MusicScoring, *, device: str) -> Result:
    files, model, total, skipped = music_data.MidiFiles(data).files, run.model(device), Tally(), list[dict[str, str]]()

    def rows() -> Iterator[Sequence[Any]]:
        read = partial(music_data.read_piece, frames_per_quarter=run.rate)
        for file, piece in read_each(files, read, skipped, skip_bad=options.skip_bad):
            nats = frame_surprise(model, torch.from_numpy(piece.roll))
            total.add(float(nats.sum()), len(nats))
            bits = float(nats.mean()) / math.log(2)
            yield file.name, len(nats), float(nats.sum()), bits, run.seconds(int(nats.argmax()))

    columns = [
        Column("file"), Column("frames"), Column("nats", 1), Column("bits_per_frame", 4, heading="bits/frame"),
        Column("most_at", 2, heading="most at"),
    ]  # fmt: skip
    empty = f"{data}: expected at least one MIDI file to score, got none"
    return total.result(
        columns, rows(), basis=run.basis, unit="file", empty=empty, rank="bits_per_frame",
        notes=lambda: [f"skipped: {bad['reason']}" for bad in skipped],
    )  # fmt: skip


def frame_surprise(model: "RNNMADE", roll: "Tensor", *, by_key: bool = False) -> Any:
    """Return the nats of each frame of a piano roll (T, 88), or of each of its keys, (T, 88)."""
    conditionals: Any
    state, x_prev, nats = model.initial_state(1), None, []
    for chunk in roll.float().to(modes.device_of(model)).unsqueeze(0).split(_CHUNK, 1):
        with torch.no_grad():
            conditionals, state = model.unroll(chunk, state, x_prev)
            log_p = conditionals.feature_log_prob(chunk) if by_key else conditionals.log_prob(chunk)
            nats.append(-log_p[0].cpu().double().numpy())
        x_prev = chunk[:, -1]
    return np.concatenate(nats)


_QUARTERS = (0, 1, 4, 16, 32)  # of the past


@dataclass(frozen=True)
class MusicInspection(CheckedOptions):
    """Measure how much of the past a trained model of music uses.

    Predicts frames of held-out pieces, or of DATA, from more and more quarter notes before them, and prints the nats
    per frame.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder or archive of MIDI files, or one file; held-out pieces by default.",
    }

    frames: Annotated[int, Range(1, 1 << 16)] = 256
    """Number of frames to predict."""


def inspect_music(run: "MusicTask", data: str | None, options: MusicInspection, *, seed: int) -> Report:
    from chainrule_app.pages.finding_pages import music_page

    model, valid = run.model(), run.music["valid"]
    rolls = (
        map(valid.roll, range(len(valid.lengths))) if data is None else _rolls(run, music_data.MidiFiles(data).files)
    )
    pieces = list(rolls)
    quarters = [number for number in _QUARTERS if number * run.rate < max(map(len, pieces))]
    longest = quarters[-1] * run.rate
    pieces = [piece for piece in pieces if len(piece) > longest]
    ends = [(piece, end) for piece in range(len(pieces)) for end in range(longest + 1, len(pieces[piece]) + 1)]
    chosen = np.random.default_rng(seed).permutation(len(ends))[: options.frames]
    x = torch.from_numpy(np.stack([pieces[ends[i][0]][ends[i][1] - longest - 1 : ends[i][1]] for i in chosen])).float()
    past = []
    for number in quarters:
        rows = x[:, -1 - number * run.rate :].split(_TOGETHER)
        with torch.no_grad():
            nats = -torch.cat([model(row).log_prob(row)[:, -1] for row in rows]).mean()
        past.append({"quarters": number, "nats_per_frame": float(nats)})
    lines = [f"{run.path}: {run.recipe}, {counted(len(x), 'frame')} of {counted(len(pieces), 'piece')}"]
    lines += [f"from {row['quarters']:>2} quarter notes before  {row['nats_per_frame']:>8.4f} nats" for row in past]
    figures = {"run": str(run.path), "frames": len(x), "past": past}
    command = inspect_again(run, data, frames=options.frames, seed=seed)
    return Report(figures, tuple(lines), str(music_page(figures, inside(run), command)))


class MusicTask(Task["RNNMADE"]):
    name = "music"
    help = "Train an RNN-MADE on MIDI files, read as frames of the 88 keys of a piano."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder of MIDI files (mid, midi), a tar or zip archive of them, or one file.", needed="MIDI files"
        ),
        "validation": Source("MIDI files to hold out; a random part of DATA by default.", "--validation"),
    }
    Data, Facts, Training = MusicData, MusicFacts, MusicTraining
    MODELS: ClassVar[dict[str, Model]] = {"rnn-made": Model("RNNMADE", RNNMADEOptions)}
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {"rnn-made": {"learning_rate": {"adamw": 3e-3}}}
    BUDGET = "10m"
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {
        "rnn-made": SizeSchedule("frames", ({"hidden_size": 128},), passes=30)
    }
    PREPARED = f"{DATA}/music.json"
    NEXT = ("chainrule sample {run} -n 3 --out song.mid", "chainrule score {run} FILES --sort")
    Scoring, score = MusicScoring, score_music
    Sampling, sample = MusicSampling, sample_music
    FILES = (".mid", ".midi")
    Inspection, inspect = MusicInspection, inspect_music
    CHECKED = (2, 6)

    @cached_property
    def music(self) -> "dict[str, Rolls]":
        return music_data.open_music(self.path / DATA)

    @property
    def rate(self) -> int:
        return int(self.data.frames_per_quarter)

    def seconds(self, frames: float, tempo: int | None = None) -> float:
        return frames / self.rate * 60 / (tempo or self.facts.quarters_per_minute)

    def prepare(self, old: "MusicTask | None" = None) -> dict[str, Any]:
        data = self.data
        if old is not None and old.data.frames_per_quarter != data.frames_per_quarter:
            raise OptionError(
                "init", f"{old.path} was trained with {option('frames_per_quarter')} {old.data.frames_per_quarter}"
            )
        return music_data.prepare_music(
            self.source,
            self.path / DATA,
            frames_per_quarter=data.frames_per_quarter,
            validation=self.config.sources["validation"],
            validation_fraction=data.validation_fraction,
            skip_bad=data.skip_bad,
            seed=self.training.seed,
        )

    @classmethod
    def fingerprint(cls, path: Any) -> dict[str, Any]:
        return music_data.MidiFiles(path).fingerprint()

    def plan(self, given: frozenset[str]) -> Planned:
        """Limit the passes over the pieces, which are soon overfitted."""
        config, timed = super().plan(given)
        if config.duration.budget is None:
            return Planned(config)
        batches, settled = self.batches((0, 1))[0], config.settled
        timed = timed or MusicTask(self.path, config).timed(batches)
        frames, options = self.facts.train.frames // batches.steps_per_epoch, settled.options if settled else []
        rate = timed.steps_per_second
        return Planned(limit_passes(config, rate, batches, _MOST_PASSES, elements=frames, options=options), timed)

    def choice(self) -> str:
        return f"{describe_passes(self.config, 'frames', 'pieces')}: hidden size {self.config.options.hidden_size}"

    def build(self) -> "RNNMADE":
        model: RNNMADE = self.built()
        assert model.made.output.bias is not None
        torch.nn.init.constant_(model.made.output.bias, _MOSTLY_UP)
        return model

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        training = self.training
        rows, length, semitones = training.batch_size, training.chunk_length, self.data.semitones
        return (
            music_data.music_batches(self.music["train"], rows, length, semitones, training.seed, shard),
            lambda: music_data.music_evaluation(self.music["valid"], _VALIDATION_ROWS),
        )

    def baseline(self, model: Any, seconds: float) -> "Baseline":
        name, measure = "frequencies of the keys", "nats per frame"
        return place_frequencies(self, model, seconds, name=name, measure=measure, levels=2)

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
        from chainrule.training import Preview
        from chainrule_app.readers.images.source import png
        from chainrule_app.tasks.preview import draw_for

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
