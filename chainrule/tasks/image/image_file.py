"""Image files: one read as the levels that a run's model knows, and the name of one to write."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainrule.data.images.source import Pixels
    from chainrule.tasks.image.task import ImageTask


def read_image(run: "ImageTask", path: Path) -> "Pixels":
    """An image file read, reduced and checked as those that the run was trained on, (C, H, W) levels.

    Where these had fewer levels than 8 bits, brightness from black to white is spread over them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no image, or of another size or kind.
    """
    import numpy as np

    from chainrule.data.images import format_shape
    from chainrule.data.text import check_file

    reduction = run.reduction
    pixels, _ = run.data.reading.image(check_file(path).read_bytes(), str(path))
    if pixels.shape != run.shape:
        channels, height, width = pixels.shape
        raise ValueError(
            f"{path}: expected an image of {format_shape(run.shape)}, as those trained on, got "
            f"{format_shape((channels, height, width))}: convert it"
        )
    if reduction.found < 256:
        pixels = (pixels.astype(np.float64) * ((reduction.found - 1) / 255)).round().astype(np.uint8)
    return reduction.apply(pixels, np.random.default_rng([run.config.training.seed, 3]))


def checked_png(out: Path | None, run: "ImageTask", what: str) -> Path:
    """The PNG file to write: `out`, or one here that is named after the run.

    Raises:
        ValueError: the name does not end in .png, or its directory is not there.
    """
    place = out or Path(f"{run.path.resolve().name}-{what}.png")
    if place.suffix.lower() != ".png":
        raise ValueError(f"--out {place}: expected a name that ends in .png")
    if place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"--out {place}: expected a file in a directory that is there")
    return place
