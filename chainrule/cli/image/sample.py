"""`chainrule sample` on a run on pictures."""

import json as json_format
import sys
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data.images.source import Pixels
    from chainrule.runs.image import ImageRun

_MOST = 4096


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 16,
    out: Path | None = None,
    label: str | None = None,
    complete: Path | None = None,
    keep_rows: int | None = None,
    temperature: float = 1.0,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Draw pictures from a trained model, or complete one, as a grid in a PNG file.

    A single picture is written as it is, without a frame; several are enlarged if they are small.

    Args:
        run: The run directory.
        n: How many pictures.
        out: The PNG file; RUN-samples.png here if not given.
        label: Of all pictures, for a model that knows labels; all labels in turn if not given.
        complete: A picture file whose first rows are kept, and the rest drawn, in n ways; the grid begins with it.
        keep_rows: Of that picture; half of them if not given.
        temperature: 1 is the model's own distribution, below it is bolder, 0 always takes the likeliest value.
        seed: The same seed gives the same pictures; new ones each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print what was drawn as one JSON object.
    """
    from chainrule.cli.image.drawing import Drawing
    from chainrule.heads.categorical import check_filters
    from chainrule.runs.image import ImageRun
    from chainrule.training.parallel import choose_device

    if not 1 <= n <= _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {n}")
    if keep_rows is not None and complete is None:
        raise ValueError("--keep-rows: of which picture? Name it with --complete")
    check_filters(temperature, None, None)
    opened = ImageRun.open(run)
    out = _checked_place(out or Path(f"{run.resolve().name}-samples.png"))
    known = None if complete is None else _first_rows(opened, complete, keep_rows)
    seed = randbelow(1 << 31) if seed is None else seed
    drawing = Drawing(opened, opened.model(choose_device(device)), temperature)
    labels = drawing.label(label, n)
    pictures = drawing.pictures(n, labels, seed, known)
    _write(out, opened, pictures, known)
    said = _said(n, opened, label, None if known is None else f"{complete} with its first {known.shape[2]} rows kept")
    if json:
        names = None if labels is None or opened.classes is None else [opened.classes[place] for place in labels]
        print(json_format.dumps({"out": str(out), "pictures": n, "labels": names, "seed": seed}))
    else:
        print(f"{out}: {said} (seed {seed})", file=sys.stderr)


def _checked_place(out: Path) -> Path:
    if out.suffix.lower() != ".png":
        raise ValueError(f"--out {out}: expected a name that ends in .png")
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out {out}: expected a file in a directory that is there")
    return out


def _first_rows(run: "ImageRun", path: Path, keep_rows: int | None) -> "Tensor":
    """(1, C, rows, W) levels of the rows of a picture file that are kept."""
    import torch

    from chainrule.cli.image.picture_file import read_picture

    height = run.shape[1]
    rows = height // 2 if keep_rows is None else keep_rows
    if not 0 <= rows <= height:
        raise ValueError(f"--keep-rows: expected a whole number from 0 to {height}, the rows of a picture, got {rows}")
    return torch.from_numpy(read_picture(run, path)[None, :, :rows].copy()).long()


def _write(out: Path, run: "ImageRun", pictures: "Pixels", known: "Tensor | None") -> None:
    import numpy as np

    from chainrule.data.atomic import write_bytes
    from chainrule.data.images import brightness, grid, png

    if known is not None:  # the grid begins with what is known, the rest in grey
        start = np.full((1, *run.shape), 96, np.uint8)
        start[:, :, : known.shape[2]] = brightness(known.numpy().astype(np.uint8), run.reduction.levels)
        pictures = np.concatenate([start, pictures])
    plain = pictures[0] if len(pictures) == 1 else None
    if plain is None:
        content = grid(pictures)
    else:
        content = plain[0] if len(plain) == 1 else plain.transpose(1, 2, 0)
    write_bytes(out, png(content))


def _said(n: int, run: "ImageRun", label: str | None, completed: str | None) -> str:
    drawn = f"{n} picture{'s' * (n > 1)}" if completed is None else f"{completed}, and {n} completion{'s' * (n > 1)}"
    return drawn + (f", label {label}" if label is not None else ", labels in turn" if run.classes else "")
