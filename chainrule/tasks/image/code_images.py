"""Images through a code: codes of them, reconstructions, what lies between two, and draws."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.image.code_options import ImageEmbedding, ImageInterpolation, ImageReconstruction
from chainrule.tasks.image.image_file import checked_png, read_image
from chainrule.tasks.image.reading import named_images, source_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.data.images.source import Pixels
    from chainrule.latent import CodeModel
    from chainrule.tasks.image.task import ImageTask

_MOST = 4096  # images of a file that is written
_COLUMNS = 4  # pairs side by side


def code_model(run: "ImageTask", device: str, verb: str) -> "CodeModel":
    """The trained model of a run that has a code.

    Raises:
        ValueError: the model has none.
    """
    from chainrule.latent import CodeModel

    if not run.has_code:
        coded = ", ".join(run.coded_models())
        raise ValueError(f"{verb}: a run of {run.config.model} has no code: expected one of {coded}")
    model = run.model(device)
    assert isinstance(model, CodeModel)
    return model


def embed_images(run: "ImageTask", data: str, options: ImageEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each image."""
    import torch

    model = code_model(run, device, "embed")
    place = next(model.parameters()).device
    for images in named_images(run, source_of(run, data, skip_bad=options.skip_bad)):
        with torch.no_grad():
            codes = model.codes(images.x.to(place)).float().cpu().tolist()
        yield from map(Code, images.names, codes, images.labels)


def reconstruct_images(
    run: "ImageTask", data: str, options: ImageReconstruction, *, out: Path | None, seed: int, device: str
) -> Answer:
    """Write images next to their reconstructions."""
    import numpy as np
    import torch

    from chainrule.data.atomic import write_bytes
    from chainrule.data.images import grid, png

    _check_count(options.count, 1)
    model = code_model(run, device, "reconstruct")
    place = checked_png(out, run, "pairs")
    device_of = next(model.parameters()).device
    generator = torch.Generator(device_of).manual_seed(seed)
    pairs: list[Pixels] = []
    error = 0.0
    for images in named_images(run, source_of(run, data, skip_bad=options.skip_bad)):
        x = images.x[: options.count - len(pairs)].to(device_of)
        with torch.no_grad():
            rebuilt = model.from_codes(model.codes(x), generator=generator).double()
        error += float(((rebuilt - x) ** 2).sum()) / (run.reduction.levels - 1) ** 2
        pairs.extend(np.stack([shown(run, x), shown(run, rebuilt)], 1))
        if len(pairs) == options.count:
            break
    if not pairs:
        raise ValueError(f"{data}: expected at least one image, got none")
    columns = 2 * min(_COLUMNS, len(pairs))
    write_bytes(place, png(grid(np.concatenate(pairs), columns)))
    mean = error / len(pairs) / run.dimensions
    values = {"images": len(pairs), "mean_squared_error": mean, "out": str(place)}
    line = (
        f"{len(pairs)} image{'s' * (len(pairs) > 1)}, each with its reconstruction to the right; mean squared error "
        f"{mean:.6f} of values from 0 to 1\nin {place}"
    )
    return Answer(iter([Record(values, line, notice=True)]))


def interpolate_images(
    run: "ImageTask",
    ends: tuple[str, str],
    options: ImageInterpolation,
    *,
    out: Path | None,
    seed: int,
    device: str,
) -> Answer:
    """Write the images between two."""
    import numpy as np
    import torch

    from chainrule.data.atomic import write_bytes
    from chainrule.data.images import grid, png

    _check_count(options.count, 2)
    model = code_model(run, device, "interpolate")
    place = checked_png(out, run, "row")
    levels = np.stack([read_image(run, Path(end)) for end in ends])
    x = torch.from_numpy(levels).long().to(next(model.parameters()).device)
    generator = torch.Generator(x.device).manual_seed(seed)
    with torch.no_grad():
        first, last = model.codes(x)
        shares = torch.linspace(0, 1, options.count, device=x.device, dtype=first.dtype).unsqueeze(1)
        between = model.from_codes(torch.lerp(first, last, shares), generator=generator)
    row = np.concatenate([shown(run, x[:1]), shown(run, between), shown(run, x[1:])])
    write_bytes(place, png(grid(row, len(row))))
    values = {"from": ends[0], "to": ends[1], "images": options.count, "out": str(place)}
    line = f"{ends[0]}, {options.count} images of the codes from its own to that of {ends[1]}, and that; in {place}"
    return Answer(iter([Record(values, line, notice=True)]))


def draw_codes(run: "ImageTask", model: "CodeModel", n: int, generator: "torch.Generator", *, mean: bool) -> "Pixels":
    """Images of codes drawn from the prior, (n, C, H, W) of 8 bits.

    Args:
        run: of the model.
        model: with a prior.
        n: how many.
        generator: of the draws.
        mean: show the expected image of each code, in place of a draw.

    Raises:
        ValueError: the model has no prior.
    """
    import torch

    from chainrule.latent import LatentModel

    if not isinstance(model, LatentModel):
        raise ValueError(
            f"sample: a run of {run.config.model} has no distribution to draw from: "
            "see `chainrule reconstruct` and `chainrule interpolate`"
        )
    with torch.no_grad():
        if mean:
            return shown(run, model.from_codes(model.prior_sample(n, generator), generator=generator))
        return shown(run, model.sample(n, generator))


def shown(run: "ImageTask", x: "Tensor") -> "Pixels":
    """Levels, or expected levels, (N, C, H, W), as 8 bits."""
    import numpy as np

    scale = 255 / (run.reduction.levels - 1)
    pixels: Pixels = (x.double().cpu().numpy() * scale).round().clip(0, 255).astype(np.uint8)
    return pixels


def _check_count(count: int, least: int) -> None:
    if not least <= count <= _MOST:
        raise ValueError(f"--count: expected a whole number from {least} to {_MOST}, got {count}")
