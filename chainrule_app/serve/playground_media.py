"""Images and sounds of the playground.

Images are drawn pixel by pixel, or completed where they were erased. Sounds are read and drawn in pieces, with the
surprise of every sample.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Sized
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from torch import Tensor

from chainrule.heads import Categorical, head_of
from chainrule.models import WaveNet
from chainrule.modes import device_of
from chainrule_app.readers.images.source import brightness
from chainrule_app.run import Run
from chainrule_app.serve.state import ServerState
from chainrule_app.serve.views import Body, Count, NumberBody, Seed, Temperature, TopP, Views
from chainrule_app.tasks.image.task import ImageTask
from chainrule_app.tasks.sound.task import SoundTask

Bytes = npt.NDArray[np.uint8]

_IMAGE_SECONDS, _SOUND_SECONDS = 0.03, 0.1  # of drawing between two messages
_EXAMPLES = 64  # held-out images or clips to begin from
_READ = 1 << 14  # samples of a prompt that are read at once
_LONGEST = 30  # seconds of a sound
_DEFAULT = 3.0  # seconds, where the training sounds are one stream


class DrawBody(Body):
    """Images to draw; see `Drawing`."""

    n: Annotated[int, Field(ge=1, le=16)] = 1
    seed: Seed = 0
    temperature: Temperature = 1.0
    label: Count | None = None
    pixels: Annotated[str, Field(max_length=1 << 20)] = ""
    known: Annotated[str, Field(max_length=1 << 20)] = ""


class SoundBody(Body):
    """A sound to draw; see `SoundRequest`."""

    seconds: Annotated[float, Field(ge=0, le=1e6)]
    prompt: Annotated[str, Field(max_length=1 << 22)] = ""
    label: Count | None = None
    temperature: Temperature = 1.0
    top_p: TopP = None
    seed: Seed = 0


def image_router(views: Views) -> APIRouter:
    """Return the routes of runs of images."""
    router = APIRouter()

    @router.post("/draw")
    async def draw(body: DrawBody) -> StreamingResponse:
        run = views.run(body, "image")
        return views.lines(stream_images(views.state, run, Drawing(**body.model_dump(exclude={"run"}))))

    @router.post("/image-example")
    async def image_example(body: NumberBody, request: Request) -> Any:
        return await views.answer(request, example_image, views.run(body, "image"), body.number)

    return router


def sound_router(views: Views) -> APIRouter:
    """Return the routes of runs of sounds."""
    router = APIRouter()

    @router.post("/sound")
    async def sound(body: SoundBody) -> StreamingResponse:
        run = views.run(body, "sound")
        return views.lines(stream_sound(views.state, run, SoundRequest(**body.model_dump(exclude={"run"}))))

    @router.post("/sound-example")
    async def sound_example(body: NumberBody, request: Request) -> Any:
        return await views.answer(request, example_sound, views.run(body, "sound"), body.number)

    return router


def check_number(number: int, count: int) -> None:
    """Check that a number is one of `count` examples."""
    if not 0 <= number < count:
        raise ValueError(f"number: expected a whole number from 0 to {count - 1}, got {number}")


def _context(label: int | None, labels: Sized | None, n: int) -> Tensor | None:
    """Return the label of n drawn images or sounds, of a model that is conditioned on one of these labels."""
    if (label is None) == bool(labels) or not 0 <= (label or 0) < len(labels or "_"):
        raise ValueError(f"label: expected {f'0 to {len(labels) - 1}' if labels else 'none'}")
    return None if label is None else torch.full((n,), label)


@dataclass(frozen=True)
class Drawing:
    """Images to draw."""

    n: int  # how many
    seed: int  # of the draws
    temperature: float  # see `AutoregressiveModel.sample`
    label: int | None  # number of the label, of a model that is conditioned on one
    pixels: str  # an image of 8 bits, (C, H, W) in base64, to be completed; empty draws whole images
    known: str  # a byte for each of its pixels, (H, W) in base64: 1 where it is kept


def _image_task(run: Run) -> ImageTask:
    return cast("ImageTask", run.task)


def about_images(run: Run) -> dict[str, Any]:
    """Return facts about the images of a run that the page needs."""
    task = _image_task(run)
    channels, height, width = task.shape
    labels = None if task.conditions is None else list(task.conditions)
    examples = min(_EXAMPLES, task.facts.images.valid) if task.is_prepared() else 0
    return {"channels": channels, "height": height, "width": width, "labels": labels, "examples": examples}


async def stream_images(state: ServerState, run: Run, drawing: Drawing) -> AsyncGenerator[dict[str, Any], None]:
    """Yield images as they are drawn, in raster order, channels last.

    Yields:
        {"from": t, "values": base64 of (n, m) bytes}: the elements t to t + m of each image, those that are known too.
    """
    draw = await state.call(_Image, run, drawing)
    while draw.place < draw.length:
        start = draw.place
        values = await state.call(draw.some)
        yield {"from": start, "values": b64encode(values.tobytes()).decode()}
    yield {"finish": "stop"}


class _Image:
    """Images that are being drawn, a few elements at a time."""

    def __init__(self, run: Run, drawing: Drawing):
        self._task, self._model, self._temperature = _image_task(run), cast(Any, run.model), drawing.temperature
        Categorical.check_filters(drawing.temperature, None, None)
        context = _context(drawing.label, self._task.conditions, drawing.n)
        self._levels, self._known = _levels(self._task, self._model, drawing)
        self._step, self._generator = self._model.prepare().step, torch.Generator(device_of(self._model))
        self._generator.manual_seed(drawing.seed)
        self._n, self.place, self.length = drawing.n, 0, self._model.sequence_length
        with torch.no_grad():
            self._state = self._model.initial_state(self._n, context)
        self._last: Tensor | None = None

    def some(self) -> Bytes:
        """Draw for a moment; the next elements of each image, (n, m) of 8 bits."""
        drawn: list[Tensor] = []
        until = monotonic() + _IMAGE_SECONDS
        with torch.no_grad():
            if self.place == 0 and (first := self._prefix()):
                prefix = self._levels[:first].expand(self._n, first)
                _, self._state = self._model.unroll(prefix, self._state)
                self._last, self.place = prefix[:, -1], first
                drawn += prefix.unbind(1)
            while self.place < self.length and (not drawn or monotonic() < until):
                conditional, self._state = self._step(self._last, self._state)
                is_known = bool(self._known[self.place])
                drawn.append(self._levels[self.place].expand(self._n) if is_known else self._drawn(conditional))
                self._last = drawn[-1]
                self.place += 1
        return _bright(self._task, torch.stack(drawn, 1))

    def _drawn(self, conditional: Any) -> Tensor:
        drawn: Tensor = head_of(conditional).filtered(self._temperature).sample(generator=self._generator)
        return drawn

    def _prefix(self) -> int:
        """Return the number of known elements before the first drawn one: the model reads them in one pass."""
        return int(self._known.int().cumprod(0).sum())


def _levels(task: Any, model: Any, drawing: Drawing) -> tuple[Tensor, Tensor]:
    """Return the levels of the image in visiting order, (T,), and which are known."""
    channels, height, width = task.shape
    if not drawing.pixels:
        return torch.zeros(model.sequence_length).long(), torch.zeros(model.sequence_length, dtype=torch.bool)
    pixels, mask = _decoded(drawing.pixels, (channels, height, width)), _decoded(drawing.known, (height, width))
    if mask.max(initial=0) > 1:
        raise ValueError("known: expected bytes of 0 and 1")
    top = task.reduction.levels - 1
    levels = torch.from_numpy((pixels.astype(np.int64) * top + 127) // 255)
    known_mask = torch.from_numpy(mask == 1).expand(channels, height, width)
    return model.to_sequence(levels[None])[0], model.to_sequence(known_mask[None])[0]


def _decoded(text: str, shape: tuple[int, ...]) -> Bytes:
    try:
        values = np.frombuffer(b64decode(text, validate=True), np.uint8)
        return values.reshape(shape)
    except ValueError:
        raise ValueError(f"expected base64 of {'×'.join(map(str, shape))} bytes") from None


def _bright(task: Any, levels: Tensor) -> Bytes:
    """Levels as 8 bits, black to white."""
    image: Bytes = np.ascontiguousarray(brightness(levels.cpu().numpy().astype(np.uint8), task.reduction.levels))
    return image


def example_image(run: Run, number: int) -> dict[str, Any]:
    """Return a held-out image as 8 bits, (C, H, W) in base64, and the number of its label."""
    task = _image_task(run)
    count = about_images(run)["examples"]
    check_number(number, count)
    batch = task.held_out_batch(count)
    label = None if batch.context is None else int(batch.context[number])
    return {"pixels": b64encode(_bright(task, batch.x[number]).tobytes()).decode(), "label": label}


@dataclass(frozen=True)
class SoundRequest:
    """A sound to draw."""

    seconds: float  # to draw after the prompt; 0 only reads it
    prompt: str  # its samples as little-endian integers of 16 bits in base64; may be empty
    label: int | None  # its number, of a model that is conditioned on one
    temperature: float  # temperature, top_p: see `AutoregressiveModel.sample`
    top_p: float | None
    seed: int  # of the draws


def _sound_task(run: Run) -> SoundTask:
    return cast("SoundTask", run.task)


def about_sounds(run: Run) -> dict[str, Any]:
    """Return facts about the sounds of a run that the page needs."""
    task = _sound_task(run)
    is_stream = task.facts.sequences == "stream"
    seconds = _DEFAULT if is_stream else min(task.mean_seconds, _LONGEST)
    examples = (1 if is_stream else min(_EXAMPLES, task.facts.valid.clips)) if task.is_prepared() else 0
    return {"rate": task.rate, "labels": task.labels, "seconds": seconds, "longest": _LONGEST, "examples": examples}


def example_sound(run: Run, number: int) -> dict[str, Any]:
    """Return the beginning of a held-out sound, 16-bit samples in base64, and the number of its label."""
    task, count = _sound_task(run), about_sounds(run)["examples"]
    check_number(number, count)
    sounds, start, stop = task.sounds(), 0, len(task.sounds().valid)
    if task.facts.sequences == "clips":
        ((start,), (stop,)) = sounds.valid.line_bounds(np.array([number]))
    levels = sounds.valid.slice(start, min(stop, start + _LONGEST * task.rate // 2))
    label = None if sounds.valid_labels is None else int(sounds.valid_labels[number])
    return {"samples": _written(task.levels.decode(levels)), "label": label}


def _written(amplitudes: npt.NDArray[np.float32]) -> str:
    """16-bit samples in base64."""
    return b64encode((amplitudes * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()).decode()


async def stream_sound(state: ServerState, run: Run, request: SoundRequest) -> AsyncGenerator[dict[str, Any], None]:
    """Yield pieces of a sound as it is read and drawn.

    Yields:
        {"samples": 16-bit samples in base64, "nats": a 32-bit float each in base64, "drawn": false for read samples}
    """
    sound = await state.call(_Sound, run, request)
    while (piece := await state.call(sound.piece)) is not None:
        yield piece
    yield {"finish": "stop"}


class _Sound:
    """A sound that is being read and drawn, some samples at a time."""

    def __init__(self, run: Run, request: SoundRequest):
        task, model = _sound_task(run), cast("WaveNet", run.model)
        context = _context(request.label, task.labels, 1)
        try:
            amplitudes = np.frombuffer(b64decode(request.prompt, validate=True), "<i2") / 32768
        except ValueError:
            raise ValueError("prompt: expected 16-bit samples in base64") from None
        prompt = torch.from_numpy(task.levels.encode(amplitudes)).unsqueeze(0)
        self._left = round(request.seconds * task.rate)
        if not 0 < self._left + prompt.shape[1] <= _LONGEST * task.rate:
            raise ValueError(f"seconds: expected a sound of at most {_LONGEST} s, the prompt included")
        seen = prompt[0, -model.receptive_field :]
        self._levels, self._model, self._parts = (
            task.levels,
            model,
            list(prompt.split(_READ, 1)) if prompt.numel() else [],
        )
        self._drawn = model.stream(
            1,
            context,
            prefix=seen if len(seen) else None,
            temperature=request.temperature,
            top_p=request.top_p,
            generator=torch.Generator(device_of(model)).manual_seed(request.seed),
        )
        self._last: Tensor | None = None
        self._state = model.initial_state(1, context)

    def piece(self) -> dict[str, Any] | None:
        """Read or draw for a moment; None at the end."""
        if not (self._parts or self._left):
            return None
        is_drawn, until, draws = not self._parts, monotonic() + _SOUND_SECONDS, list[Tensor]()
        with torch.no_grad():  # also around the draws: each piece may be drawn in another thread
            while is_drawn and self._left and (not draws or monotonic() < until):
                draws.append(next(self._drawn))
                self._left -= 1
            levels = torch.stack(draws, 1) if is_drawn else self._parts.pop(0)
            conditionals, self._state = self._model.unroll(levels, self._state, self._last)
            nats = -conditionals.log_prob(levels)[0]
        self._last = levels[:, -1]
        return {
            "samples": _written(self._levels.decode(levels[0].numpy())),
            "nats": b64encode(nats.float().numpy().astype("<f4").tobytes()).decode(),
            "drawn": is_drawn,
        }
