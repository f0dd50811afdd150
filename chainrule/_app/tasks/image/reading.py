"""Images that a user names, reduced to the levels of a run's model: many with their names, or one; a file to write."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.image.task import ImageTask
    from chainrule.data._images import ImageSource
    from chainrule.data._images.source import Pixels


@dataclass(frozen=True)
class NamedImages:
    """Images of a batch."""

    x: "Tensor"  # (B, C, H, W) levels
    context: "Tensor | None"  # (B,) labels of a model that is conditioned on them; None for another
    names: list[str]
    labels: list[str | None]  # of the images, where the source has any that the run knows


def source_of(run: "ImageTask", data: str, *, skip_bad: bool) -> "ImageSource":
    """Open images that are like those that a run was trained on."""
    from chainrule.data._images import check_alike, is_collection, is_images, open_source
    from chainrule.data._text import no_such_file, refuse_stdin

    reading = run.data.reading if is_collection(Path(data)) else None
    if not Path(data).exists() and not is_images(data):
        refuse_stdin(data)
        raise no_such_file(data, "file or folder: expected images")
    labelled, levels = _labelled(run), run.reduction.found
    black_and_white = 2 if run.reduction.binarise is not None else levels  # see `as_they_are`
    source = open_source(data, labelled=labelled, reading=reading, skip_bad=skip_bad, black_and_white=black_and_white)
    check_alike(source, run.shape, levels)
    if run.conditions is not None:
        assert source.labels is not None
        source.labels.among(run.conditions, source.label)
    if source.skipped:
        print(f"{len(source.skipped)} image files cannot be read: {', '.join(source.skipped[:5])}", file=sys.stderr)
    return source


def _labelled(run: "ImageTask") -> bool | None:
    """Whether labels are needed; None takes them where there are any."""
    if run.conditions is not None:
        return True
    return None if run.classes is not None else False


def as_they_are(run: "ImageTask", source: "ImageSource") -> bool:
    """Whether a model of binarised images is given images that are binary already."""
    return run.reduction.binarise is not None and source.levels == 2


def named_images(run: "ImageTask", source: "ImageSource") -> Iterator[NamedImages]:
    """The images of a source in order; the draws of a binarisation are those of held-out images."""
    import numpy as np

    from chainrule.data._images import image_evaluation

    numbers, classes = None, run.classes
    if classes is not None and source.labels is not None and set(source.labels.names) <= set(classes):
        numbers = source.labels.among(classes, source.label)
    random = np.random.default_rng([run.config.training.seed, 2])
    start = 0
    for block in source.blocks():
        pixels = block if as_they_are(run, source) else run.reduction.apply(block, random)
        given = None if numbers is None or run.conditions is None else numbers[start : start + len(block)]
        for batch in image_evaluation(pixels, given, run.rows_at_once):
            places = range(start, start + len(batch.x))
            labels = [None if numbers is None or classes is None else classes[numbers[place]] for place in places]
            yield NamedImages(batch.x, batch.context, [source.called(place) for place in places], labels)
            start += len(batch.x)


def read_image(run: "ImageTask", path: Path) -> "Pixels":
    """An image file read, reduced and checked as those that the run was trained on, (C, H, W) levels."""
    import numpy as np

    return run.reduction.apply(run.read_pixels(path), np.random.default_rng([run.config.training.seed, 3]))
