"""`chainrule score` on a run on sounds."""

import heapq
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainrule.cli.sound.scoring import ScoredSound, Scorer
from chainrule.tasks.display import dump_json


def score(
    run: Path,
    data: Path,
    /,
    *,
    label: str | None = None,
    sort: Annotated[bool, Parameter(negative=())] = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Score sounds: nats and bits per sample of each file, exact under the model, and where it is most surprising.

    Args:
        run: The run directory.
        data: A folder of sounds, an archive of them, or one file; resampled as those of the run were.
        label: Of all of them, in a run with labels; read off their names if not given.
        sort: Most surprising first, by bits per sample.
        top: Only so many files, the most surprising ones.
        skip_bad: Leave out files that cannot be read.
        json: Print one JSON object a file.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.data.sounds import Collection
    from chainrule.runs.sound import SoundRun
    from chainrule.training.parallel import choose_device

    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    opened = SoundRun.open(run)
    files, scorer = Collection(data).files, Scorer(opened, opened.model(choose_device(device)), label)
    count, samples, nats = 0, 0, 0.0

    def scored() -> Iterator[ScoredSound]:
        nonlocal count, samples, nats
        for file in files:
            try:
                sound = scorer.score(file)
            except ValueError as error:
                if not skip_bad:
                    raise
                print(f"skipped: {error}", file=sys.stderr)
                continue
            count, samples, nats = count + 1, samples + sound.samples, nats + sound.nats
            yield sound

    sounds = scored()
    if top is not None:
        sounds = iter(heapq.nlargest(top, sounds, key=lambda sound: sound.bits_per_sample))
    elif sort:
        sounds = iter(sorted(sounds, key=lambda sound: -sound.bits_per_sample))
    if not json:
        print(f"{'nats':>10} {'bits/sample':>11} {'seconds':>8} {'most at':>8}  file")
    for sound in sounds:
        if json:
            print(dump_json(asdict(sound)))
        else:
            name = sound.file if sound.file.isprintable() else repr(sound.file)[1:-1]
            shown = f"{sound.nats:>10.1f} {sound.bits_per_sample:>11.4f} {sound.seconds:>8.2f} {sound.most_at:>8.2f}"
            print(f"{shown}  {name}" + ("" if sound.label is None else f" ({sound.label})"))
    if not samples:
        raise ValueError(f"{data}: expected at least one sound to score, got none")
    if not json:
        bits = nats / samples / math.log(2)
        print(f"{count:,} files, {samples:,} samples, {bits:.4f} bits per sample")
