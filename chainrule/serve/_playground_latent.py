"""Latent spaces of the playground: codes of images, moved by sliders and decoded."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from chainrule._app.run import Run
from chainrule._app.tasks.image.codes import shown
from chainrule._modes import device_of
from chainrule.serve._playground_images import example_image

_SLIDERS = 12  # latent dimensions that can be moved
_REACH = 3.0  # standard deviations of the prior
_EXAMPLES = 64  # held-out images to begin from
_MEASURED = 256  # held-out images whose codes tell which dimensions are in use


@dataclass(frozen=True)
class _Latent:
    """The dimensions that can be moved: their numbers and ranges; a central code; codes of held-out images."""

    dimensions: list[int]
    low: list[float]
    high: list[float]
    centre: "Tensor"
    codes: "Tensor"


@lru_cache(maxsize=16)
def _latent(run: Run) -> _Latent:
    """Return the dimensions that the model uses, most used first; all of them where no held-out images tell."""
    from chainrule._latent import LatentModel
    from chainrule.diagnostics import active_units

    model: Any = run.model
    task: Any = run._task
    images = task.held_out_batch(_MEASURED).x if task.is_prepared() else torch.empty(0)
    use = active_units(model, images) if len(images) > 1 else None
    codes = torch.empty(0, model.latent_size) if use is None else use.codes
    dimensions = (use.ranked if use else [])[:_SLIDERS] or list(range(min(model.latent_size, _SLIDERS)))
    low, high, centre = [-_REACH] * len(dimensions), [_REACH] * len(dimensions), torch.zeros(model.latent_size)
    if use is not None and not isinstance(model, LatentModel):
        ends = torch.tensor([0.01, 0.99], dtype=codes.dtype)
        (low, high), centre = codes[:, dimensions].quantile(ends, dim=0).tolist(), codes.mean(0)
    return _Latent(dimensions, low, high, centre, codes[:_EXAMPLES])


def about_latent(run: Run) -> dict[str, Any]:
    """Return the sliders (the latent dimension of each, and its range), the central code, and what can be encoded."""
    latent = _latent(run)
    return {
        "dimensions": latent.dimensions,
        "low": latent.low,
        "high": latent.high,
        "start": latent.centre.tolist(),
        "examples": len(latent.codes),
    }


def decode(run: Run, code: Sequence[float], seed: int) -> dict[str, Any]:
    """Return the image of a code: `pixels` of 8 bits, (C, H, W) in base64."""
    model: Any = run.model
    task: Any = run._task
    if len(code) != model.latent_size:
        raise ValueError(f"code: expected {model.latent_size} numbers, got {len(code)}")
    z = torch.tensor([code]).to(next(model.parameters()))
    generator = torch.Generator(device_of(model)).manual_seed(seed)
    with torch.no_grad():
        drawn = model.from_codes(z, generator=generator)
    return {"pixels": b64encode(shown(task, drawn)[0].tobytes()).decode()}


def encode_example(run: Run, number: int) -> dict[str, Any]:
    """Return a held-out image with its code."""
    latent = _latent(run)
    if not 0 <= number < len(latent.codes):
        raise ValueError(f"number: expected a whole number from 0 to {len(latent.codes) - 1}, got {number}")
    return example_image(run, number) | {"code": latent.codes[number].tolist()}
