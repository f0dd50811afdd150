"""Images of the playground: drawn pixel by pixel, or completed where they were erased."""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._app.run import Run
from chainrule._app.tasks.image.task import ImageTask
from chainrule._modes import device_of
from chainrule.data._images import brightness
from chainrule.heads._adapter import head_of
from chainrule.heads._categorical import check_filters
from chainrule.serve._state import ServerState

Bytes = npt.NDArray[np.uint8]

_SECONDS = 0.03  # of drawing between two messages
_EXAMPLES = 64  # held-out images to begin from


@dataclass(frozen=True)
class Drawing:
    """Images to draw."""

    n: int  # how many
    seed: int  # of the draws
    temperature: float  # see `AutoregressiveModel.sample`
    label: int | None  # number of the label, of a model that is conditioned on one
    pixels: str  # an image of 8 bits, (C, H, W) in base64, to be completed; empty draws whole images
    known: str  # a byte for each of its pixels, (H, W) in base64: 1 where it is kept


def task_of(run: Run) -> ImageTask:
    """Return the task of a run of images."""
    return cast("ImageTask", run._task)


def about_images(run: Run) -> dict[str, Any]:
    """Facts about the images of a run that the page needs."""
    task = task_of(run)
    channels, height, width = task.shape
    labels = None if task.conditions is None else list(task.conditions)
    examples = min(_EXAMPLES, task.facts.images.valid) if task.is_prepared() else 0
    return {"channels": channels, "height": height, "width": width, "labels": labels, "examples": examples}


async def stream_images(state: ServerState, run: Run, drawing: Drawing) -> AsyncGenerator[dict[str, Any], None]:
    """Images as they are drawn, in raster order, channels last.

    Yields:
        {"from": t, "values": base64 of (n, m) bytes}: the elements t to t + m of each image, those that are known too.
    """
    draw = await state.call(_Draw, run, drawing)
    while draw.place < draw.length:
        start = draw.place
        values = await state.call(draw.some)
        yield {"from": start, "values": b64encode(values.tobytes()).decode()}
    yield {"finish": "stop"}


class _Draw:
    """Images that are being drawn, a few elements at a time."""

    def __init__(self, run: Run, drawing: Drawing):
        self._task, self._model, self._temperature = task_of(run), cast(Any, run.model), drawing.temperature
        check_filters(drawing.temperature, None, None)
        classes = self._task.conditions
        if (classes is None) != (drawing.label is None) or not 0 <= (drawing.label or 0) < len(classes or "_"):
            raise ValueError(f"label: expected {'none' if classes is None else f'0 to {len(classes) - 1}'}")
        context = None if drawing.label is None else torch.full((drawing.n,), drawing.label)
        self._levels, self._known = _given(self._task, self._model, drawing)
        self._step, self._generator = self._model.prepare().step, torch.Generator(device_of(self._model))
        self._generator.manual_seed(drawing.seed)
        self._n, self.place, self.length = drawing.n, 0, self._model.sequence_length
        with torch.no_grad():
            self._state = self._model.initial_state(self._n, context)
        self._last: Tensor | None = None

    def some(self) -> Bytes:
        """Draw for a moment; the next elements of each image, (n, m) of 8 bits."""
        drawn: list[Tensor] = []
        until = monotonic() + _SECONDS
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


def _given(task: Any, model: Any, drawing: Drawing) -> tuple[Tensor, Tensor]:
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
    task = task_of(run)
    count = about_images(run)["examples"]
    if not 0 <= number < count:
        raise ValueError(f"number: expected a whole number from 0 to {count - 1}, got {number}")
    batch = task.held_out_batch(count)
    label = None if batch.context is None else int(batch.context[number])
    return {"pixels": b64encode(_bright(task, batch.x[number]).tobytes()).decode(), "label": label}
