"""`chainrule inspect` on a run on sounds: how far back it listens."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from chainrule.runs.sound import SoundRun

_SHARES = (0.5, 0.9, 0.99)


def inspect(
    run: Path,
    /,
    *,
    rows: int = 4,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show how far back a trained model of sounds listens: by its architecture, and by its derivatives.

    The derivatives are those of one conditional with respect to every sample before it, on held-out sounds: how far
    back the receptive field reaches, and within how many samples half, 90% and 99% of the squared influence lie.

    Args:
        run: The run directory.
        rows: Held-out clips to read.
        seed: Of the random directions in which derivatives are taken.
        json: Print it as one JSON object, with the influence of every sample, the nearest first.
    """
    from chainrule.runs.sound import SoundRun

    if rows < 1:
        raise ValueError(f"--rows: expected a whole number >= 1, got {rows}")
    opened = SoundRun.open(run)
    figures = inspected(opened, rows, seed)
    if json:
        print(json_format.dumps(figures))
        return
    options, rate = opened.options, opened.rate

    def told(samples: int) -> str:
        return f"{samples:,} samples, {1000 * samples / rate:.1f} ms"

    dilations = " ".join(str(2**place) for place in range(options.layers_per_block))
    print(f"layers            {options.blocks} × dilations {dilations}, {options.kernel_size} taps")
    print(f"receptive field   {told(figures['receptive_field'])} (by the architecture)")
    short = "" if figures["read"] > figures["receptive_field"] else f", of the {figures['read'] - 1:,} that there are"
    print(f"by derivatives    {told(figures['reached'])}{short}")
    for share in _SHARES:
        print(f"{share:>4.0%} of influence  {told(figures['within'][str(share)])}")


def inspected(run: "SoundRun", rows: int, seed: int) -> dict[str, Any]:
    """The figures: on the last position of held-out clips, cut to one more than the receptive field."""
    import torch

    from chainrule.diagnostics.receptive_field import receptive_field

    model, sounds = run.model(), run.sounds()
    seen = model.receptive_field
    starts, stops = sounds.valid.line_bounds(torch.arange(sounds.valid.line_count).numpy())
    lengths = torch.from_numpy(stops - starts)
    chosen = lengths.argsort(descending=True, stable=True)[:rows]
    time = min(int(lengths[chosen].min()), seen + 8)
    x = torch.stack([torch.from_numpy(sounds.valid.slice(stops[row] - time, stops[row])) for row in chosen])
    context = None if sounds.valid_labels is None else torch.from_numpy(sounds.valid_labels)[chosen]
    field = receptive_field(model, time - 1, x, context, seed=seed)
    influence = field.influence[: time - 1].flip(0)
    reached = int(influence.nonzero().max()) + 1 if bool((influence > 0).any()) else 0
    shares = influence.square().cumsum(0) / influence.square().sum()
    return {
        "rate": run.rate,
        "receptive_field": seen,
        "read": time,
        "reached": reached,
        "as_declared": bool(field.summary()["as_declared"]),
        "within": {str(share): int((shares < share).sum()) + 1 for share in _SHARES},
        "influence": influence.tolist(),
    }
