"""Draw, score, embed and inspect sounds with a trained model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError, UserError, option, raw_text
from chainrule.ranges import Range
from chainrule_app.heavy import modes, np, torch
from chainrule_app.printing import counted
from chainrule_app.readers import sounds as sound_reader
from chainrule_app.readers.members import read_each
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.options import TemperatureOptions
from chainrule_app.tasks.output import inside, inspect_again
from chainrule_app.tasks.tally import Tally

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import WaveNet
    from chainrule_app.readers.sounds.sound_file import SoundFile
    from chainrule_app.tasks.sound.task import SoundTask

_ROWS = 64  # sounds drawn together
_STREAM_SECONDS = 3.0


@dataclass(frozen=True)
class SoundSampling(TemperatureOptions):
    """Draw sounds from a trained model, each as a 16-bit wav file."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "n": "Number of sounds.",
        "out": "The file, sample.wav by default; several sounds become sample-1.wav, sample-2.wav and so on.",
        "json": "Print one JSON object per sound, with its label and seconds.",
    }

    seconds: Annotated[float, Range(0.0, 3600.0)] | None = None
    """Length of each sample, including the prompt; by default the mean of the training clips, after the prompt."""
    label: str | None = None
    """Label of the sounds, in a run with labels; all labels in turn by default."""
    prompt: Path | None = None
    """Sound with which each sample begins."""
    top_p: float | None = None
    """Draw from the fewest levels whose probability reaches p."""
    half_weights: bool = False
    """Draw from a nearby model, whose weights are rounded to float16: a single long sound takes a quarter less time."""


def sample_sounds(run: "SoundTask", n: int, options: SoundSampling, *, seed: int, device: str) -> Result:
    """Draw n sounds: an array of amplitudes from -1 to 1 each."""
    labels = _labels(run, options.label, n)
    prompt = torch.zeros(0, dtype=torch.long) if options.prompt is None else _prompt(run, options.prompt)
    length = _length(run, options.seconds, len(prompt))
    model = run.model(device)
    if options.half_weights:
        _round_weights(model)
    # The model sees only the end of a long prompt.
    unseen, seen = prompt[: -model.receptive_field], prompt[-model.receptive_field :]

    def rows() -> Iterator[Sequence[Any]]:
        generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
        for start in range(0, n, _ROWS):
            size = min(_ROWS, n - start)
            drawn = model.sample(
                size,
                None if labels is None else labels[start : start + _ROWS],
                length=length - len(unseen),
                prefix=seen if len(seen) else None,
                temperature=options.temperature,
                top_p=options.top_p,
                generator=generator,
            ).cpu()
            for number, row in enumerate(torch.cat([unseen.expand(size, -1), drawn], 1).numpy(), start):
                label = None if labels is None else run.labels[int(labels[number])]
                yield run.levels.decode(row), label, length / run.rate

    columns = [Column("sound"), Column("label", shown=bool(run.labels)), Column("seconds", 2)]
    about = {"rate": run.rate, "seed": seed} | ({"weights": "float16"} if options.half_weights else {})
    notes = ["The weights are rounded to float16: the samples are those of a nearby model."]
    return Result(columns, rows(), about=about, form="sounds", notes=lambda: notes if options.half_weights else ())


@torch.no_grad()
def _round_weights(model: "WaveNet") -> None:
    """Round all matrices to float16 in place; compiled loops then read half the bytes."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            rounded = parameter.half().to(parameter.dtype)
            parameter.copy_(rounded.where(rounded.isfinite(), parameter))


def _labels(run: "SoundTask", label: str | None, n: int) -> "Tensor | None":
    if label is not None:
        return torch.full((n,), run.label(label))
    return torch.arange(n) % len(run.labels) if run.labels else None


def _prompt(run: "SoundTask", path: Path) -> "Tensor":
    files = sound_reader.Collection(path).files
    if len(files) != 1:
        raise OptionError("prompt", f"expected one sound, got {len(files)} in {path}")
    blocks = [run.levels.encode(block) for block in sound_reader.read_sound(files[0], run.rate)]
    if not blocks:
        raise OptionError("prompt", f"expected a sound with samples, got none in {path}")
    return torch.from_numpy(np.concatenate(blocks))


def _length(run: "SoundTask", seconds: float | None, prompt_length: int) -> int:
    default = _STREAM_SECONDS if run.facts.sequences == "stream" else run.mean_seconds
    length = prompt_length + round(default * run.rate) if seconds is None else round(seconds * run.rate)
    if length <= prompt_length:
        began = f", more than the {prompt_length / run.rate:.2f} of the prompt" if prompt_length else ""
        raise OptionError("seconds", f"expected a length of at least one sample{began}, got {seconds:g}")
    return length


_CHUNK = 1 << 14  # samples read in one pass
_WINDOW = 0.05  # seconds over which surprise is averaged to find where it is highest


@dataclass(frozen=True)
class SoundScoring:
    """Score sounds: nats and bits per sample of each file, exact under the model, and its most surprising moment."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "A folder or archive of sounds, or one file; resampled to the run's rate.",
    }

    label: str | None = None
    """Label of all sounds, in a run with labels; read from file names by default."""
    skip_bad: Switch = False
    """Skip files that cannot be read."""


def score_sounds(run: "SoundTask", data: str, options: SoundScoring, *, device: str) -> Result:
    if options.label is not None:
        run.label(options.label)
    files, model, total = sound_reader.Collection(data).files, run.model(device), Tally()
    skipped: list[dict[str, str]] = []

    def rows() -> Iterator[Sequence[Any]]:
        score = partial(_score, run, model, label=options.label)
        for _, figures in read_each(files, score, skipped, skip_bad=options.skip_bad):
            total.add(figures["nats"], figures["samples"])
            yield tuple(figures.values())

    columns = [
        Column("file"), Column("label", shown=bool(run.labels)), Column("samples"), Column("seconds", 2),
        Column("nats", 1), Column("bits_per_sample", 4, heading="bits/sample"), Column("most_at", 2, heading="most at"),
    ]  # fmt: skip
    empty = f"{data}: expected at least one sound to score, got none"
    return total.result(
        columns, rows(), basis=run.basis, unit="file", empty=empty, rank="bits_per_sample",
        notes=lambda: [f"skipped: {bad['reason']}" for bad in skipped],
    )  # fmt: skip


def label_of(run: "SoundTask", file: "SoundFile", label: str | None) -> "tuple[str | None, Tensor | None]":
    """Return the label of a file, from its name if not given, also as the model reads it, (1,)."""
    from chainrule_app.readers.sounds.prepare import label_number

    name = label if label is not None or not run.labels else run.labelling(file.name)
    if name is None:
        return None, None
    try:
        return name, torch.tensor([label_number(run.labels, name)])
    except ValueError as error:
        raise UserError(f"{file.label}: {raw_text(error)}", f"{option('label')} sets it for all files") from None


def _score(run: "SoundTask", model: "WaveNet", file: "SoundFile", label: str | None) -> dict[str, Any]:
    """Score one file; `most_at` is the second of the highest surprise."""
    device = modes.device_of(model)
    name, context = label_of(run, file, label)
    context = None if context is None else context.to(device)
    state, x_prev, surprise = model.initial_state(1, context), None, []
    with torch.no_grad():
        for block in sound_reader.read_sound(file, run.rate):
            for chunk in torch.from_numpy(run.levels.encode(block)).to(device).split(_CHUNK):
                conditionals, state = model.unroll(chunk.unsqueeze(0), state, x_prev)
                surprise.append(-conditionals.log_prob(chunk.unsqueeze(0))[0].cpu().double().numpy())
                x_prev = chunk[-1:]
    nats = np.concatenate(surprise) if surprise else np.zeros(0)
    if not len(nats):
        raise ValueError(f"{file.label}: contains no samples: remove it")
    width = min(max(round(_WINDOW * run.rate), 1), len(nats))
    means = np.convolve(nats, np.full(width, 1 / width), mode="valid")
    return {
        "file": file.name,
        "label": name,
        "samples": len(nats),
        "seconds": len(nats) / run.rate,
        "nats": float(nats.sum()),
        "bits_per_sample": float(nats.mean() / math.log(2)),
        "most_at": float((means.argmax() + width / 2) / run.rate),
    }


_SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class SoundInspection(CheckedOptions):
    """Measure how far back a trained model of sounds listens, by its architecture and by its derivatives.

    Takes the derivatives of one conditional with respect to every earlier sample, on held-out sounds: they show how far
    back the receptive field reaches, and within how many samples half, 90% and 99% of the squared influence lie.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "json": "Print one JSON object, with the influence of every sample, nearest first.",
    }

    rows: Annotated[int, Range(1, 4096)] = 4
    """Number of clips to read."""


def inspect_sounds(run: "SoundTask", data: str | None, options: SoundInspection, *, seed: int) -> Report:
    """Inspect a run at the last of a few samples of each clip, past the receptive field if they are long enough."""
    from chainrule.diagnostics import receptive_field
    from chainrule_app.pages.finding_pages import sound_page

    if data is not None:
        raise ValueError(f"inspect reads the run's held-out sounds, got {data}: leave it out")

    model = run.model()
    seen = model.receptive_field
    clips, context = _held_out(run, options.rows, seen + 8)
    time = min(map(len, clips))
    field = receptive_field(model, time - 1, torch.stack([clip[-time:] for clip in clips]), context, seed=seed)
    influence = field.influence[: time - 1].flip(0)
    reached = int(influence.nonzero().max()) + 1 if bool((influence > 0).any()) else 0
    shares = influence.square().cumsum(0) / influence.square().sum()
    figures = {
        "run": str(run.path),
        "rate": run.rate,
        "receptive_field": seen,
        "read": time,
        "reached": reached,
        "as_declared": bool(field.summary()["as_declared"]),
        "within": {str(share): int((shares < share).sum()) + 1 for share in _SHARES},
        "influence": influence.tolist(),
    }
    page = sound_page(figures, inside(run), inspect_again(run, rows=options.rows, seed=seed))
    return Report(figures, tuple(_lines(run, figures)), str(page))


def _held_out(run: "SoundTask", rows: int, most: int) -> "tuple[list[Tensor], Tensor | None]":
    """Return the ends of the longest clips, and their labels."""
    sounds = run.sounds()
    starts, stops = sounds.valid.line_bounds(torch.arange(sounds.valid.line_count).numpy())
    chosen = torch.from_numpy(stops - starts).argsort(descending=True, stable=True)[:rows]
    clips = [
        torch.from_numpy(sounds.valid.slice(max(starts[row], stops[row] - most), stops[row])) for row in chosen.tolist()
    ]
    return clips, None if sounds.valid_labels is None else torch.from_numpy(sounds.valid_labels)[chosen]


def _lines(run: "SoundTask", figures: dict[str, Any]) -> Iterable[str]:
    options = run.config.options

    def in_time(samples: int) -> str:
        return f"{counted(samples, 'sample')}, {1000 * samples / run.rate:.1f} ms"

    dilations = " ".join(str(2**index) for index in range(options.layers_per_block))
    short = "" if figures["read"] > figures["receptive_field"] else f", of {figures['read'] - 1:,} available"
    yield f"layers            {options.blocks} × dilations {dilations}, {options.kernel_size} taps"
    yield f"receptive field   {in_time(figures['receptive_field'])} (by the architecture)"
    yield f"by derivatives    {in_time(figures['reached'])}{short}"
    for share in _SHARES:
        yield f"{share:>4.0%} of influence  {in_time(figures['within'][str(share)])}"
