"""Sounds drawn from a trained model, into wav files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.sound.task import SoundTask

_ROWS = 64  # sounds drawn together
_STREAM_SECONDS = 3.0


@dataclass(frozen=True)
class SoundSampling(CheckedOptions):
    """Draw sounds from a trained model, each into a wav file of 16 bits.

    Args:
        n: How many sounds.
        out: The file, sample.wav by default; several sounds become sample-1.wav, sample-2.wav and so on.
        json: Print one JSON object a sound, with its label and seconds.
    """

    seconds: float | None = within(None, 0.0, 3600.0)
    """How long each is, the prompt counted; as the clips trained on are, where not given."""
    label: str | None = None
    """Label to draw, in a run with labels; each of them in turn if not given."""
    prompt: Path | None = None
    """A sound that each one begins with."""
    temperature: float = 1.0
    """0 is greedy, 1 is the model's own distribution; below 1 sounds are less varied."""
    top_p: float | None = None
    """Draw from the fewest levels whose probability reaches p."""


def sample_sounds(run: "SoundTask", n: int, options: SoundSampling, *, seed: int, device: str) -> Result:
    """Draw n sounds: an array of amplitudes from -1 to 1 each."""
    import torch

    from chainrule._modes import device_of

    labels = _labels(run, options.label, n)
    prompt = torch.zeros(0, dtype=torch.long) if options.prompt is None else _prompt(run, options.prompt)
    length = _length(run, options.seconds, len(prompt))
    model = run.model(device)
    # Of a long prompt the model sees the end alone.
    unseen, seen = prompt[: -model.receptive_field], prompt[-model.receptive_field :]

    def rows() -> Iterator[Sequence[Any]]:
        generator = torch.Generator(device_of(model)).manual_seed(seed)
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
    return Result(columns, rows(), about={"rate": run.rate, "seed": seed}, form="sounds")


def _labels(run: "SoundTask", label: str | None, n: int) -> "Tensor | None":
    import torch

    if label is not None:
        return torch.full((n,), run.label(label))
    return torch.arange(n) % len(run.labels) if run.labels else None


def _prompt(run: "SoundTask", path: Path) -> "Tensor":
    import numpy as np
    import torch

    from chainrule.data._sounds import Collection, read_sound

    files = Collection(path).files
    if len(files) != 1:
        raise ValueError(f"--prompt: expected one sound, got {len(files)} in {path}")
    blocks = [run.levels.encode(block) for block in read_sound(files[0], run.rate)]
    if not blocks:
        raise ValueError(f"--prompt: expected a sound with samples, got none in {path}")
    return torch.from_numpy(np.concatenate(blocks))


def _length(run: "SoundTask", seconds: float | None, known: int) -> int:
    usual = _STREAM_SECONDS if run.facts.sequences == "stream" else run.mean_seconds
    length = known + round(usual * run.rate) if seconds is None else round(seconds * run.rate)
    if length <= known:
        began = f", more than the {known / run.rate:.2f} of the prompt" if known else ""
        raise ValueError(f"--seconds: expected a length of at least one sample{began}, got {seconds:g}")
    return length
