"""`chainrule sample` on a run on sounds."""

import json as json_format
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.runs.sound import SoundRun

_ROWS = 64  # sounds drawn together
_STREAM_SECONDS = 3.0


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 1,
    out: Path = Path("sample.wav"),
    seconds: float | None = None,
    label: str | None = None,
    prompt: Path | None = None,
    temperature: float = 1.0,
    top_p: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Draw sounds from a trained model, each into a wav file of 16 bits.

    Args:
        run: The run directory.
        n: How many sounds.
        out: The file; of several, sample.wav stands for sample-1.wav, sample-2.wav and so on.
        seconds: How long each is, the prompt counted; as the clips trained on are, where not given.
        label: What to draw, in a run with labels; each of them in turn if not given.
        prompt: A sound that each one begins with.
        temperature: 0 is greedy, 1 is the model's own distribution; sounds below 1 are calmer.
        top_p: Draw from the fewest levels whose probability reaches p.
        seed: The same seed gives the same sounds; new ones each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a sound, with "file", "seconds", "label", "seed" and "levels".
    """
    import torch

    from chainrule.cli.sound.sparkline import sparkline
    from chainrule.data.sounds import write_wav
    from chainrule.runs.sound import SoundRun
    from chainrule.training.parallel import choose_device

    if n < 1:
        raise ValueError(f"-n: expected a whole number >= 1, got {n}")
    if out.suffix.lower() != ".wav":
        raise ValueError(f"--out: expected a name that ends in .wav, got {out}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"--out: expected a folder that exists, got {out.parent}")
    opened = SoundRun.open(run)
    labels = _labels(opened, label, n)
    prefix = None if prompt is None else _prompt(opened, prompt)
    length = _length(opened, seconds, 0 if prefix is None else len(prefix))
    model = opened.model(choose_device(device))
    # Of a long prompt the model sees the end alone.
    unseen, seen = (
        (None, None) if prefix is None else (prefix[: -model.receptive_field], prefix[-model.receptive_field :])
    )
    seed = randbelow(1 << 31) if seed is None else seed
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    for start in range(0, n, _ROWS):
        part = None if labels is None else labels[start : start + _ROWS]
        rows = min(_ROWS, n - start)
        drawn = model.sample(
            rows,
            part,
            length=length - (0 if unseen is None else len(unseen)),
            prefix=seen,
            temperature=temperature,
            top_p=top_p,
            generator=generator,
        ).cpu()
        if unseen is not None:
            drawn = torch.cat([unseen.expand(rows, -1), drawn], 1)
        for number, row in enumerate(drawn.numpy(), start + 1):
            file = out if n == 1 else out.with_stem(f"{out.stem}-{number}")
            amplitudes = opened.levels.decode(row)
            write_wav(file, amplitudes, opened.rate)
            name = None if labels is None else opened.labels[int(labels[number - 1])]
            if json:
                record = {"file": str(file), "seconds": length / opened.rate, "label": name, "seed": seed}
                print(json_format.dumps(record | {"levels": row.tolist()}))
            else:
                told = f"{name}  " if name is not None else ""
                print(f"{file}  {told}{sparkline(amplitudes)}  {length / opened.rate:.2f} s (seed {seed})")


def _labels(run: "SoundRun", label: str | None, n: int) -> "Tensor | None":
    import torch

    from chainrule.data.sounds.labels import label_number

    if not run.labels:
        if label is not None:
            raise ValueError(
                "--label: this run was trained without labels: leave it out, or train with --label-pattern"
            )
        return None
    if label is None:
        return torch.arange(n) % len(run.labels)
    try:
        return torch.full((n,), label_number(run.labels, label))
    except ValueError as error:
        raise ValueError(f"--{error}") from None


def _prompt(run: "SoundRun", path: Path) -> "Tensor":
    import numpy as np
    import torch

    from chainrule.data.sounds import Collection, read_sound

    files = Collection(path).files
    if len(files) != 1:
        raise ValueError(f"--prompt: expected one sound, got {len(files)} in {path}")
    blocks = [run.levels.encode(block) for block in read_sound(files[0], run.rate)]
    if not blocks:
        raise ValueError(f"--prompt: expected a sound with samples, got none in {path}")
    return torch.from_numpy(np.concatenate(blocks))


def _length(run: "SoundRun", seconds: float | None, known: int) -> int:
    from chainrule.cli.sound.train import mean_seconds

    facts = run.config.facts
    usual = _STREAM_SECONDS if facts["sequences"] == "stream" else mean_seconds(facts)
    length = known + round(usual * run.rate) if seconds is None else round(seconds * run.rate)
    if length <= known:
        began = f", more than the {known / run.rate:.2f} of the prompt" if known else ""
        raise ValueError(f"--seconds: expected a length of at least one sample{began}, got {seconds:g}")
    return length
