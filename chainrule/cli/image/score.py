"""`chainrule score` on a run on pictures."""

import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.data.images import ImageSource
    from chainrule.runs.image import ImageRun

_ELEMENTS = 1 << 16  # of the pictures that are scored together


def score(
    run: Path,
    data: str,
    /,
    *,
    sort: Annotated[bool, Parameter(negative=())] = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Score pictures: nats and bits per dimension of each, exact under the model.

    They are reduced to the levels of the model as those trained on were. A model that knows labels scores each picture
    given its label.

    Args:
        run: The run directory.
        data: A folder, an npz, npy or idx file, as for training.
        sort: Most surprising first.
        top: Only so many pictures, the most surprising ones.
        skip_bad: Leave out picture files that cannot be read, and say how many.
        json: Print one JSON object a picture.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.runs.image import ImageRun
    from chainrule.training import units

    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    opened = ImageRun.open(run)
    source = _source(opened, data, skip_bad=skip_bad)
    count, total = 0, 0.0

    def counted(pictures: Iterator[ScoredPicture]) -> Iterator[ScoredPicture]:
        nonlocal count, total
        for picture in pictures:
            count, total = count + 1, total + picture.nats
            yield picture

    size = int(opened.shape[0] * opened.shape[1] * opened.shape[2])
    pictures = counted(_scored(opened, source, device))
    if top is not None:
        pictures = iter(heapq.nlargest(top, pictures, key=lambda picture: picture.nats))
    elif sort:
        pictures = iter(sorted(pictures, key=lambda picture: -picture.nats))
    if not json:
        print(f"{'nats':>10} {'bits/dim':>9}  " + (f"{'label':<10}  " if opened.classes else "") + "picture")
    for picture in pictures:
        bits = units.bits(picture.nats) / size
        if json:
            print(dump_json(picture.record(bits)))
        else:
            label = "" if picture.label is None else f"{picture.label:<10}  "
            print(f"{picture.nats:>10.2f} {bits:>9.4f}  {label}{_printable(picture.name)}")
    if not json:
        bits = units.bits(total) / size / count
        protocol = _protocol(opened, source)
        print(f"{count:,} pictures, {total / count:.3f} nats per picture, {bits:.4f} bits/dim ({protocol})")


@dataclass
class ScoredPicture:
    """The surprise of a picture."""

    name: str
    nats: float
    label: str | None

    def record(self, bits: float) -> dict[str, Any]:
        """As JSON takes it."""
        return {"picture": self.name, "nats": self.nats, "bits_per_dimension": bits, "label": self.label}


def _source(run: "ImageRun", data: str, *, skip_bad: bool) -> "ImageSource":
    from chainrule.data.images import check_alike, is_images, open_source

    reading = run.data.reading if Path(data).is_dir() else None
    if not Path(data).exists() and not is_images(data):
        raise FileNotFoundError(f"{data}: no such file or folder: expected pictures")
    labelled = run.classes is not None
    source = open_source(data, labelled=labelled, reading=reading, skip_bad=skip_bad)
    check_alike(source, run.shape, run.reduction.found)
    if run.classes is not None:
        assert source.labels is not None
        source.labels.among(run.classes, source.label)
    if source.skipped:
        print(f"{len(source.skipped)} picture files cannot be read: {', '.join(source.skipped[:5])}", file=sys.stderr)
    return source


def _protocol(run: "ImageRun", source: "ImageSource") -> str:
    """What was made of the values before they were scored, which every figure depends on."""
    if _as_they_are(run, source):
        return "2 levels, as they are stored"
    if run.reduction.draws:
        return f"binarised by one fixed draw, seed {run.config.training.seed}"
    return str(run.reduction)


def _as_they_are(run: "ImageRun", source: "ImageSource") -> bool:
    """Whether a model of binarised pictures is given pictures that are binary already."""
    return run.reduction.binarise is not None and source.levels == 2


def _scored(run: "ImageRun", source: "ImageSource", device: str) -> Iterator[ScoredPicture]:
    import numpy as np
    import torch

    from chainrule.data.images import image_evaluation
    from chainrule.training.parallel import choose_device

    model = run.model(choose_device(device))
    place = next(model.parameters()).device
    classes = run.classes
    numbers = None
    if classes is not None and source.labels is not None:
        numbers = source.labels.among(classes, source.label)
    random = np.random.default_rng([run.config.training.seed, 2])  # the draws of held-out pictures
    as_they_are, start = _as_they_are(run, source), 0
    for block in source.blocks():
        pixels = block if as_they_are else run.reduction.apply(block, random)
        labels = None if numbers is None else numbers[start : start + len(block)]
        for batch in image_evaluation(pixels, labels, max(1, _ELEMENTS // pixels[0].size)):
            context = None if batch.context is None else batch.context.to(place)
            with torch.no_grad():
                nats = -model.log_prob(batch.x.to(place), context).double()
            for value in nats.tolist():
                label = None if numbers is None or classes is None else classes[numbers[start]]
                yield ScoredPicture(source.called(start), value, label)
                start += 1


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
