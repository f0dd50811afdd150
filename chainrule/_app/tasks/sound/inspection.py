"""Inside a trained model of sounds: how far back it listens."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Report
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.sound.task import SoundTask

_SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class SoundInspection(CheckedOptions):
    """Show how far back a trained model of sounds listens: by its architecture, and by its derivatives.

    The derivatives are those of one conditional with respect to every sample before it, on held-out sounds or those of
    DATA: how far back the receptive field reaches, and within how many samples half, 90% and 99% of the squared
    influence lie.

    Args:
        data: Sounds to read the beginning of in place of the held-out ones.
        seed: Seed of the random directions in which derivatives are taken.
        json: Print it as one JSON object, with the influence of every sample, the nearest first.
    """

    rows: int = within(4, 1, 4096)
    """Clips to read."""


def inspect_sounds(run: "SoundTask", data: str | None, options: SoundInspection, *, seed: int) -> Report:
    """Inspect a run at the last of a few samples of each clip, one more than the receptive field if there are."""
    import torch

    from chainrule.diagnostics import receptive_field

    model = run.model()
    seen = model.receptive_field
    clips, context = (
        _held_out(run, options.rows, seen + 8) if data is None else _read(run, data, options.rows, seen + 8)
    )
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
    return Report(figures, tuple(_lines(run, figures)))


def _held_out(run: "SoundTask", rows: int, most: int) -> "tuple[list[Tensor], Tensor | None]":
    """The ends of the longest clips, and their labels."""
    import torch

    sounds = run.sounds()
    starts, stops = sounds.valid.line_bounds(torch.arange(sounds.valid.line_count).numpy())
    chosen = torch.from_numpy(stops - starts).argsort(descending=True, stable=True)[:rows]
    clips = [
        torch.from_numpy(sounds.valid.slice(max(starts[row], stops[row] - most), stops[row])) for row in chosen.tolist()
    ]
    return clips, None if sounds.valid_labels is None else torch.from_numpy(sounds.valid_labels)[chosen]


def _read(run: "SoundTask", data: str, rows: int, most: int) -> "tuple[list[Tensor], Tensor | None]":
    """The beginnings of the first files, and their labels."""
    import numpy as np
    import torch

    from chainrule.data._sounds import Collection, read_sound
    from chainrule.data._sounds.labels import label_number

    clips, labels = [], []
    for file in Collection(data).files[:rows]:
        read = 0
        blocks = []
        for block in read_sound(file, run.rate):
            blocks.append(run.levels.encode(block))
            read += len(block)
            if read >= most:
                break
        if read < 2:
            raise ValueError(f"{file.label}: expected at least two samples, got {read}")
        clips.append(torch.from_numpy(np.concatenate(blocks)[:most]))
        labels += [label_number(run.labels, run.labelling(file.name))] if run.labels else []
    return clips, torch.tensor(labels) if labels else None


def _lines(run: "SoundTask", figures: dict[str, Any]) -> Iterable[str]:
    options = run.config.options

    def told(samples: int) -> str:
        return f"{counted(samples, 'sample')}, {1000 * samples / run.rate:.1f} ms"

    dilations = " ".join(str(2**place) for place in range(options.layers_per_block))
    short = "" if figures["read"] > figures["receptive_field"] else f", of the {figures['read'] - 1:,} that there are"
    yield f"layers            {options.blocks} × dilations {dilations}, {options.kernel_size} taps"
    yield f"receptive field   {told(figures['receptive_field'])} (by the architecture)"
    yield f"by derivatives    {told(figures['reached'])}{short}"
    for share in _SHARES:
        yield f"{share:>4.0%} of influence  {told(figures['within'][str(share)])}"
