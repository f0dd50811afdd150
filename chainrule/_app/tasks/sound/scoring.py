"""Score sounds with a trained model: the surprise of each, the time at which it is highest, and features."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Column, Result
from chainrule._app.tasks.display import Switch
from chainrule._app.tasks.ledger import Tally

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.sound.task import SoundTask
    from chainrule.data._sounds import SoundFile
    from chainrule.models import WaveNet

_CHUNK = 1 << 14  # samples read in one pass
_WINDOW = 0.05  # seconds over which surprise is averaged to find where it is highest


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


def score_sounds(run: "SoundTask", data: str, options: SoundScoring, *, device: str) -> Result:
    """Score files one at a time."""
    from chainrule.data._sounds import Collection

    if options.label is not None:
        run.label(options.label)
    files, model, total = Collection(data).files, run.model(device), Tally()
    skipped: list[str] = []

    def rows() -> Iterator[Sequence[Any]]:
        for file in files:
            try:
                found = _score(run, model, file, options.label)
            except ValueError as error:
                if not options.skip_bad:
                    raise
                skipped.append(f"skipped: {error}")
                continue
            total.add(found["nats"], found["samples"])
            yield tuple(found.values())

    columns = [
        Column("file"), Column("label", shown=bool(run.labels)), Column("samples"), Column("seconds", 2),
        Column("nats", 1), Column("bits_per_sample", 4, heading="bits/sample"), Column("most_at", 2, heading="most at"),
    ]  # fmt: skip
    empty = f"{data}: expected at least one sound to score, got none"
    return total.result(
        columns, rows(), basis=run.basis, unit="file", empty=empty, rank="bits_per_sample", notes=lambda: skipped
    )


def label_of(run: "SoundTask", file: "SoundFile", label: str | None) -> "tuple[str | None, Tensor | None]":
    """The label of a file, by name and as the model takes it, (1,); read off the name of the file if not given."""
    import torch

    from chainrule.data._sounds.labels import label_number

    name = label if label is not None or not run.labels else run.labelling(file.name)
    if name is None:
        return None, None
    try:
        return name, torch.tensor([label_number(run.labels, name)])
    except ValueError as error:
        raise ValueError(f"{file.label}: {error}; --label says it for all") from None


def _score(run: "SoundTask", model: "WaveNet", file: "SoundFile", label: str | None) -> dict[str, Any]:
    """The surprise of one file, in memory that does not grow with it but for a number a sample."""
    import numpy as np
    import torch

    from chainrule._modes import device_of
    from chainrule.data._sounds import read_sound

    device = device_of(model)
    name, context = label_of(run, file, label)
    context = None if context is None else context.to(device)
    state, x_prev, surprise = model.initial_state(1, context), None, []
    with torch.no_grad():
        for block in read_sound(file, run.rate):
            for chunk in torch.from_numpy(run.levels.encode(block)).to(device).split(_CHUNK):
                conditionals, state = model.unroll(chunk.unsqueeze(0), state, x_prev)
                surprise.append(-conditionals.log_prob(chunk.unsqueeze(0))[0].cpu().double().numpy())
                x_prev = chunk[-1:]
    nats = np.concatenate(surprise) if surprise else np.zeros(0)
    if not len(nats):
        raise ValueError(f"{file.label}: expected a sound, got none: it has no samples")
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


@dataclass(frozen=True)
class SoundEmbedding:
    """Embed sounds: for each file the features of the last layer after its last sample, which see the receptive field.

    Args:
        data: A folder of sounds, an archive of them, or one file; resampled as those of the run were.
    """

    label: str | None = None
    """Label of all sounds, in a run with labels; read off their names if not given."""


def embed_sounds(run: "SoundTask", data: str, options: SoundEmbedding, *, device: str) -> Result:
    """The code of each file."""
    import torch

    from chainrule._modes import device_of
    from chainrule.data._sounds import Collection, read_sound

    model = run.model(device)
    place = device_of(model)

    def rows() -> Iterator[Sequence[Any]]:
        for file in Collection(data).files:
            name, context = label_of(run, file, options.label)
            end: deque[int] = deque(maxlen=model.receptive_field)  # nothing earlier is seen
            for block in read_sound(file, run.rate):
                end.extend(run.levels.encode(block)[-model.receptive_field :].tolist())
            if not end:
                raise ValueError(f"{file.label}: expected a sound, got none: it has no samples")
            x = torch.tensor([[*end, 0]], device=place)  # the features at an element are of those before it
            with torch.no_grad():
                h = model.features(x, None if context is None else context.to(place))[0, -1]
            yield file.name, name, h.float().cpu().numpy()

    return Result([Column("input"), Column("label"), Column("code", heading="z")], rows(), main="code", form="csv")
