"""Draw, score and inspect music with a trained model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.heavy import modes, np, torch
from chainrule._app.results import Column, Report, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import Switch, counted
from chainrule._app.tasks.likelihood_record import Tally
from chainrule.data._members import read_each

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.music.task import MusicTask
    from chainrule.data._members import Member
    from chainrule.data._music import Roll
    from chainrule.models import RNNMADE

_CHUNK = 1024  # frames scored in one pass
_TOGETHER = 64  # pieces drawn in one batch


@dataclass(frozen=True)
class MusicSampling(CheckedOptions):
    """Draw pieces of music from a trained model, each as a MIDI file.

    Args:
        n: Number of pieces.
        out: The file, sample.mid by default; several pieces become sample-1.mid, sample-2.mid and so on.
        json: Print one JSON object per piece, with its seconds.
    """

    seconds: float | None = within(None, 0.0, 36_000.0)
    """Length of each piece, including the prompt; by default the mean of the training pieces, after the prompt."""
    tempo: int | None = within(None, 4, 1000)
    """Quarter notes per minute; by default the median of the training files."""
    prompt: Path | None = None
    """MIDI file with which each piece begins."""
    temperature: float = 1.0
    """Sampling temperature: 1 is the model's distribution, lower values are less varied, 0 is greedy."""
    top_p: float | None = None
    """Ignore what is less likely than 1 - p for a key: to be down, or up."""


@dataclass(frozen=True)
class MusicScoring:
    """Score music: nats and bits per frame of each MIDI file, exact under the model, and its most surprising moment.

    Args:
        data: A folder or archive of MIDI files, or one file.
        sort: Sort by bits per frame, highest first.
        top: Print only the N most surprising files.
        json: Print one JSON object per file.
    """

    skip_bad: Switch = False
    """Skip files that cannot be read."""


def _rolls(run: "MusicTask", files: "Iterable[Member]") -> "Iterator[Roll]":
    from chainrule.data._music import read_piece

    return (read_piece(file, run.rate).roll for file in files)


def sample_music(run: "MusicTask", n: int, options: MusicSampling, *, seed: int, device: str) -> Result:
    """Draw n pieces: a piano roll (T, 88) of 0 and 1 each."""
    from chainrule.heads._categorical import check_filters

    check_filters(options.temperature, None, options.top_p)
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
    from chainrule.data._music import MidiFiles

    files = MidiFiles(path).files
    if len(files) != 1:
        raise ValueError(f"--prompt: expected one MIDI file, got {len(files)} in {path}")
    (roll,) = _rolls(run, files)
    return torch.from_numpy(roll).float().unsqueeze(0)


def _length(run: "MusicTask", options: MusicSampling, prompt: int) -> int:
    train, seconds = run.facts.train, options.seconds
    if seconds is None:
        return prompt + max(round(train.frames / train.pieces), 1)
    length = round(seconds / run.seconds(1, options.tempo))
    if length <= prompt:
        began = f", more than the {run.seconds(prompt, options.tempo):.2f} of the prompt" if prompt else ""
        raise ValueError(f"--seconds: expected a length of at least one frame{began}, got {seconds:g}")
    return length


def score_music(run: "MusicTask", data: str, options: MusicScoring, *, device: str) -> Result:
    from chainrule.data._music import MidiFiles, read_piece

    files, model, total, skipped = MidiFiles(data).files, run.model(device), Tally(), list[dict[str, str]]()

    def rows() -> Iterator[Sequence[Any]]:
        read = partial(read_piece, frames_per_quarter=run.rate)
        for file, piece in read_each(files, read, skipped, skip_bad=options.skip_bad):
            nats = _surprise(model, torch.from_numpy(piece.roll))
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


@torch.no_grad()
def _surprise(model: "RNNMADE", roll: "Tensor") -> Any:
    """Return the nats of each frame of a piano roll (T, 88)."""
    state, x_prev, nats = model.initial_state(1), None, []
    for chunk in roll.float().to(modes.device_of(model)).unsqueeze(0).split(_CHUNK, 1):
        conditionals, state = model.unroll(chunk, state, x_prev)
        nats.append(-conditionals.log_prob(chunk)[0].cpu().double().numpy())
        x_prev = chunk[:, -1]
    return np.concatenate(nats)


_QUARTERS = (0, 1, 4, 16, 32)  # of the past


@dataclass(frozen=True)
class MusicInspection(CheckedOptions):
    """Measure how much of the past a trained model of music uses.

    Predicts frames of held-out pieces, or of DATA, from more and more quarter notes before them, and prints the nats
    per frame.

    Args:
        data: A folder or archive of MIDI files, or one file; held-out pieces by default.
        seed: Seed of the choice of frames.
        json: Print one JSON object.
    """

    frames: int = within(256, 1, 1 << 16)
    """Number of frames to predict."""


@torch.no_grad()
def inspect_music(run: "MusicTask", data: str | None, options: MusicInspection, *, seed: int) -> Report:
    from chainrule.data._music import MidiFiles

    model, valid = run.model(), run.music["valid"]
    rolls = map(valid.roll, range(len(valid.lengths))) if data is None else _rolls(run, MidiFiles(data).files)
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
        nats = -torch.cat([model(row).log_prob(row)[:, -1] for row in rows]).mean()
        past.append({"quarters": number, "nats_per_frame": float(nats)})
    lines = [f"{run.path}: {run.recipe}, {counted(len(x), 'frame')} of {counted(len(pieces), 'piece')}"]
    lines += [f"from {row['quarters']:>2} quarter notes before  {row['nats_per_frame']:>8.4f} nats" for row in past]
    return Report({"run": str(run.path), "frames": len(x), "past": past}, tuple(lines))
