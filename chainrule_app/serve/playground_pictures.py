"""Pictures that a user of the playground uploads or draws: labelled, or captioned."""

from io import BytesIO
from typing import Annotated, Any, cast

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field

from chainrule_app.readers.images.folder import Reading
from chainrule_app.readers.images.source import Pixels
from chainrule_app.run import Run
from chainrule_app.serve.playground_answers import ranked
from chainrule_app.serve.playground_examples import data_url
from chainrule_app.serve.routes import bytes_of
from chainrule_app.serve.views import Body, Views
from chainrule_app.tasks.caption.run import CaptionRun
from chainrule_app.tasks.caption.verbs import CaptionOptions, look_again, search_captions, words_of
from chainrule_app.tasks.output import channels_last

_COMPARED = 64  # held-out images


class ImageBody(Body):
    """An image file to answer, in base64."""

    image: Annotated[str, Field(max_length=1 << 23)]


class CaptionBody(ImageBody):
    """An image file to caption."""

    beam: Annotated[int, Field(ge=1, le=16)] = 4


def picture_router(views: Views) -> APIRouter:
    """Return the routes of runs that label and caption images."""
    router = APIRouter()

    @router.post("/classify-image")
    async def classify(body: ImageBody, request: Request) -> Any:
        run = views.run(body, "classify-images")
        return await views.answer(request, classify_image, run, bytes_of(body.image, "image"))

    @router.post("/caption-image")
    async def caption(body: CaptionBody, request: Request) -> Any:
        run = views.run(body, "caption")
        return await views.answer(request, caption_image, run, bytes_of(body.image, "image"), body.beam)

    return router


def read_upload(run: Run, content: bytes) -> Any:
    """Read an image file of any size and convert it like the run's images, (C, H, W) of 8 bits."""
    channels, height, width = cast(Any, run.task).shape
    reading = Reading((height, width), "grey" if channels == 1 else "rgb")
    return reading.image(BytesIO(content), "the file")[0]


def classify_image(run: Run, content: bytes) -> dict[str, Any]:
    """Label an image file.

    An image that is light where the held-out images are dark at their edges is inverted before.

    Returns:
        `labels` with their probabilities, likeliest first; `inverted`; `image`: a data URL of what was read.
    """
    task, pixels = cast(Any, run.task), read_upload(run, content)
    top, inverted = task.facts.found_levels - 1, False
    if task.is_prepared():
        held_out = np.array(task.images().valid[:_COMPARED])
        inverted = (_edge(held_out) > top / 2) != (_edge(pixels[None]) > 255 / 2)
    levels = ((255 - pixels if inverted else pixels).astype(np.float64) * (top / 255)).round().astype(np.uint8)
    row = next(iter(run.classify(channels_last(levels)[None]).records()))
    return {"labels": ranked(row["probabilities"]), "inverted": inverted, "image": data_url(pixels)}


def _edge(images: Pixels) -> float:
    """Return the mean over the pixels at the edges of images (N, C, H, W)."""
    sides = images[..., 0], images[..., -1], images[:, :, 0], images[:, :, -1]
    return float(np.mean([side.mean() for side in sides]))


def caption_image(run: Run, content: bytes, beam: int) -> dict[str, Any]:
    """Search the likeliest captions of an image file.

    Returns:
        `image`: a data URL of what the model saw; `candidates`: captions, best first, each with its `nats`, its
        `words`, the `surprise` of each, and their `attention` to the places of the grid, row by row; None for a model
        that reads a single vector.
    """
    task, model = cast("CaptionRun", run.task), cast(Any, run.model)
    size, vocabulary = task.data.image_size, task.vocabulary
    pixels, _ = Reading((size, size), "rgb", task.data.fit).image(BytesIO(content), "the file")
    [found] = search_captions(task, model, [pixels], CaptionOptions(beam=beam, n_best=beam))
    candidates = []
    for text, symbols, ended in zip(words_of(found, vocabulary), found.sequences, found.ended.tolist(), strict=True):
        look = look_again(model, pixels, symbols, vocabulary, ended=ended)
        attention = None if look.attention is None else np.round(look.attention.double().numpy(), 4).tolist()
        candidates.append(
            {
                "caption": text,
                "nats": sum(look.surprise),
                "words": [*look.words[:-1], "(end)"] if ended else look.words,
                "surprise": look.surprise,
                "attention": attention,
            }
        )
    return {"image": data_url(pixels), "candidates": candidates}
