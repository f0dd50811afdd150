"""Latent spaces of the playground: codes of images, moved by sliders and decoded."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from pydantic import Field
from torch import Tensor

from chainrule.modes import device_of
from chainrule_app.run import Run
from chainrule_app.serve.playground_media import check_number, example_image
from chainrule_app.serve.views import Body, NumberBody, Seed, Views
from chainrule_app.tasks.image.codes import shown

_SLIDERS = 12  # latent dimensions that can be moved
_REACH = 3.0  # standard deviations of the prior
_EXAMPLES = 64  # held-out images to begin from


class CodeBody(Body):
    """A latent code."""

    code: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=1 << 10)]
    seed: Seed = 0


def latent_router(views: Views) -> APIRouter:
    """Return the routes of runs with a latent code."""
    router = APIRouter()

    @router.post("/decode")
    async def decode_code(body: CodeBody, request: Request) -> Any:
        return await views.answer(request, decode, views.run(body, "latent"), body.code, body.seed)

    @router.post("/encode-example")
    async def encode_number(body: NumberBody, request: Request) -> Any:
        return await views.answer(request, encode_example, views.run(body, "latent"), body.number)

    return router


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
    from chainrule import LatentModel
    from chainrule.diagnostics import active_units

    model: Any = run.model
    task: Any = run.task
    rows = task.coded_rows() if task.is_prepared() else torch.empty(0)
    use = active_units(model, rows) if len(rows) > 1 else None
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
    task: Any = run.task
    if len(code) != model.latent_size:
        raise ValueError(f"code: expected {model.latent_size} numbers, got {len(code)}")
    z = torch.tensor([code]).to(next(model.parameters()))
    generator = torch.Generator(device_of(model)).manual_seed(seed)
    with torch.no_grad():
        drawn = model.from_codes(z, generator=generator)
    return {"pixels": b64encode(shown(task, drawn)[0].tobytes()).decode()}


def encode_example(run: Run, number: int) -> dict[str, Any]:
    """Return a held-out image and its code."""
    codes = _latent(run).codes
    check_number(number, len(codes))
    return example_image(run, number) | {"code": codes[number].tolist()}
