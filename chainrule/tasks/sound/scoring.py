"""How surprising sounds are to a trained model, and where in each it is most so."""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import Switch, one_line
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data.sounds import SoundFile
    from chainrule.models.wavenet import WaveNet
    from chainrule.tasks.sound.task import SoundTask

_CHUNK = 1 << 14  # samples read in one pass
_WINDOW = 0.05  # seconds over which surprise is averaged to find where it is highest
_HEADING = f"{'nats':>10} {'bits/sample':>11} {'seconds':>8} {'most at':>8}  file"


@dataclass(frozen=True)
class SoundScoring:
    """Score sounds: nats and bits per sample of each file, exact under the model, and where it is most surprising.

    Args:
        data: A folder of sounds, an archive of them, or one file; resampled as those of the run were.
        sort: Most surprising first, by bits per sample.
        top: Only so many files, the most surprising ones.
        json: Print one JSON object a file.
    """

    label: str | None = None
    """Label of all sounds, in a run with labels; read off their names if not given."""
    skip_bad: Switch = False
    """Leave out files that cannot be read."""


@dataclass(frozen=True)
class _ScoredSound:
    """The surprise of a file; `most_at` is the second around which it is highest."""

    file: str
    label: str | None
    samples: int
    seconds: float
    nats: float
    bits_per_sample: float
    most_at: float

    def record(self) -> Record:
        figures = f"{self.nats:>10.1f} {self.bits_per_sample:>11.4f} {self.seconds:>8.2f} {self.most_at:>8.2f}"
        label = "" if self.label is None else f" ({self.label})"
        return Record(asdict(self), f"{figures}  {one_line(self.file)}{label}", self.bits_per_sample)


def score_sounds(run: "SoundTask", data: str, options: SoundScoring, *, device: str) -> Answer:
    """Score files one at a time."""
    from chainrule.data.sounds import Collection
    from chainrule.data.sounds.labels import label_number

    if options.label is not None:
        if not run.labels:
            raise ValueError("--label: this run was trained without labels: leave it out")
        label_number(run.labels, options.label)
    files, model = Collection(data).files, run.model(device)
    count, samples, nats = 0, 0, 0.0

    def records() -> Iterator[Record]:
        nonlocal count, samples, nats
        for file in files:
            try:
                sound = _score(run, model, file, options.label)
            except ValueError as error:
                if not options.skip_bad:
                    raise
                print(f"skipped: {error}", file=sys.stderr)
                continue
            count, samples, nats = count + 1, samples + sound.samples, nats + sound.nats
            yield sound.record()
        if not samples:
            raise ValueError(f"{data}: expected at least one sound to score, got none")

    def closing() -> Iterable[str]:
        yield f"{count:,} files, {samples:,} samples, {nats / samples / math.log(2):.4f} bits per sample"

    return Answer(records(), _HEADING, closing, lambda: LedgerEntry(run.basis, nats, samples, ""))


def label_of(run: "SoundTask", file: "SoundFile", label: str | None) -> "tuple[str | None, Tensor | None]":
    """The label of a file, by name and as the model takes it, (1,); read off the name of the file if not given.

    Raises:
        ValueError: the run knows no such label.
    """
    import torch

    from chainrule.data.sounds.labels import label_number

    name = label if label is not None or not run.labels else run.labelling(file.name)
    if name is None:
        return None, None
    try:
        return name, torch.tensor([label_number(run.labels, name)])
    except ValueError as error:
        raise ValueError(f"{file.label}: {error}; --label says it for all") from None


def _score(run: "SoundTask", model: "WaveNet", file: "SoundFile", label: str | None) -> _ScoredSound:
    """The surprise of one file, in memory that does not grow with it but for a number a sample.

    Args:
        run: of sounds.
        model: its model.
        file: the sound.
        label: of it; `None` reads it off the name, in a run with labels.

    Raises:
        ValueError: it cannot be read, has no samples, or no label that the run knows.
    """
    import numpy as np
    import torch

    from chainrule.data.sounds import read_sound

    device = next(model.parameters()).device
    name, context = label_of(run, file, label)
    context = None if context is None else context.to(device)
    state, x_prev, surprise = model.initial_state(1, context), None, []
    with torch.no_grad():
        for block in read_sound(file, run.rate):
            for chunk in torch.from_numpy(run.levels.encode(block)).to(device).split(_CHUNK):
                conditionals, state = model.unroll(chunk.unsqueeze(0), state, x_prev)
                surprise.append(-conditionals.log_prob(chunk.unsqueeze(0))[0].double().cpu().numpy())
                x_prev = chunk[-1:]
    nats = np.concatenate(surprise) if surprise else np.zeros(0)
    if not len(nats):
        raise ValueError(f"{file.label}: expected a sound, got none: it has no samples")
    width = min(max(round(_WINDOW * run.rate), 1), len(nats))
    means = np.convolve(nats, np.full(width, 1 / width), mode="valid")
    return _ScoredSound(
        file=file.name,
        label=name,
        samples=len(nats),
        seconds=len(nats) / run.rate,
        nats=float(nats.sum()),
        bits_per_sample=float(nats.mean() / math.log(2)),
        most_at=float((means.argmax() + width / 2) / run.rate),
    )
