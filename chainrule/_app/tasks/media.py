"""Images and sounds of a result, written as files."""

from pathlib import Path
from typing import Any

from chainrule._app.results import Result
from chainrule._app.tasks.display import loudness_line

_IMAGES, _SOUNDS = "samples.png", "sample.wav"


def write_images(result: Result, out: Path | None) -> list[tuple[Path, str]]:
    """Write the images of a result as a grid, or a single one as it is."""
    import numpy as np

    from chainrule.data import grid, png
    from chainrule.data._atomic import write_bytes

    file = Path(result.hints.get("file", _IMAGES)) if out is None else out
    images = np.stack([channels_first(image) for image in result.values])
    if len(images) == 1:
        content = images[0, 0] if images.shape[1] == 1 else images[0].transpose(1, 2, 0)
    else:
        content = grid(images, result.hints.get("columns"))
    write_bytes(file, png(content))
    return [(file, f"{len(images)} image{'s' * (len(images) > 1)}")] * len(images)


def channels_first(image: Any) -> Any:
    """An image (H, W) or (H, W, C) as (C, H, W)."""
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


def channels_last(image: Any) -> Any:
    """An image (C, H, W) as (H, W) where it has one channel, else (H, W, C)."""
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)


def write_sounds(result: Result, out: Path | None) -> list[tuple[Path, str]]:
    """Write each sound of a result into a wav file, several of them numbered."""
    from chainrule.data import write_wav

    file, rate = Path(result.hints.get("file", _SOUNDS)) if out is None else out, result.about["rate"]
    written, sounds = [], result.values
    for number, (record, sound) in enumerate(zip(result, sounds, strict=True), 1):
        path = file if len(sounds) == 1 else file.with_stem(f"{file.stem}-{number}")
        write_wav(path, sound, rate)
        label = f"{record['label']}  " if record.get("label") else ""
        written.append((path, f"{label}{loudness_line(sound)}  {len(sound) / rate:.2f} s"))
    return written
