"""Images scored by a trained model."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.commands import Switch
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from chainrule.data.images import ImageSource
    from chainrule.tasks.image.task import ImageTask

_ELEMENTS = 1 << 16  # of the pictures that are scored together


@dataclass(frozen=True)
class ImageScoring:
    """Score images: nats and bits per dimension of each, exact under the model.

    They are reduced to the levels of the model as those trained on were. A model that knows labels scores each image
    given its label.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
        json: Print one JSON object a picture.
    """

    skip_bad: Switch = False
    """Leave out picture files that cannot be read, and say how many."""


def score_images(run: "ImageTask", data: str, options: ImageScoring, *, device: str) -> Answer:
    """Score images, a record each."""
    from chainrule.training import units

    source = _source(run, data, skip_bad=options.skip_bad)
    size = run.shape[0] * run.shape[1] * run.shape[2]
    count, total = 0, 0.0

    def records() -> Iterator[Record]:
        nonlocal count, total
        for name, nats, label in _scored(run, source, device):
            count, total = count + 1, total + nats
            bits = units.bits(nats) / size
            values = {"picture": name, "nats": nats, "bits_per_dimension": bits, "label": label}
            said = "" if label is None else f"{label:<10}  "
            yield Record(values, f"{nats:>10.2f} {bits:>9.4f}  {said}{_printable(name)}", nats)

    def closing() -> Iterable[str]:
        bits = units.bits(total) / size / count
        yield (
            f"{count:,} pictures, {total / count:.3f} nats per picture, {bits:.4f} bits/dim ({_protocol(run, source)})"
        )

    basis = replace(run.basis, base_measure="2 levels") if _as_they_are(run, source) else run.basis

    heading = f"{'nats':>10} {'bits/dim':>9}  " + (f"{'label':<10}  " if run.classes else "") + "picture"
    return Answer(records(), heading, closing, lambda: LedgerEntry(basis, total, count * size, ""), basis)


def _source(run: "ImageTask", data: str, *, skip_bad: bool) -> "ImageSource":
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


def _protocol(run: "ImageTask", source: "ImageSource") -> str:
    """What was made of the values before they were scored, which every figure depends on."""
    if _as_they_are(run, source):
        return "2 levels, as they are stored"
    if run.reduction.draws:
        return f"binarised by one fixed draw, seed {run.config.training.seed}"
    return str(run.reduction)


def _as_they_are(run: "ImageTask", source: "ImageSource") -> bool:
    """Whether a model of binarised pictures is given pictures that are binary already."""
    return run.reduction.binarise is not None and source.levels == 2


def _scored(run: "ImageTask", source: "ImageSource", device: str) -> Iterator[tuple[str, float, str | None]]:
    """Name, nats and label of each image."""
    import numpy as np
    import torch

    from chainrule.data.images import image_evaluation

    model = run.model(device)
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
                yield source.called(start), value, label
                start += 1


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
