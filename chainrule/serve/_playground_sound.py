"""Sounds of the playground: read, and drawn in pieces, with the surprise of every sample."""

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
from chainrule._app.tasks.sound.task import SoundTask
from chainrule._modes import device_of
from chainrule.models import WaveNet
from chainrule.serve._state import ServerState

_SECONDS = 0.1  # of drawing between two messages
_READ = 1 << 14  # samples of a prompt that are read at once
_LONGEST = 30  # seconds of a sound
_DEFAULT = 3.0  # seconds, where the training sounds are one stream
_EXAMPLES = 64  # held-out clips to begin from


@dataclass(frozen=True)
class SoundRequest:
    """A sound to draw."""

    seconds: float  # to draw after the prompt; 0 only reads it
    prompt: str  # its samples as little-endian integers of 16 bits in base64; may be empty
    label: int | None  # its number, of a model that is conditioned on one
    temperature: float  # temperature, top_p: see `AutoregressiveModel.sample`
    top_p: float | None
    seed: int  # of the draws


def task_of(run: Run) -> SoundTask:
    """Return the task of a run of sounds."""
    return cast("SoundTask", run._task)


def about_sounds(run: Run) -> dict[str, Any]:
    """Return facts about the sounds of a run that the page needs."""
    task = task_of(run)
    is_stream = task.facts.sequences == "stream"
    seconds = _DEFAULT if is_stream else min(task.mean_seconds, _LONGEST)
    examples = (1 if is_stream else min(_EXAMPLES, task.facts.valid.clips)) if task.is_prepared() else 0
    return {"rate": task.rate, "labels": task.labels, "seconds": seconds, "longest": _LONGEST, "examples": examples}


def example_sound(run: Run, number: int) -> dict[str, Any]:
    """Return the beginning of a held-out sound, 16-bit samples in base64, and the number of its label."""
    task, count = task_of(run), about_sounds(run)["examples"]
    if not 0 <= number < count:
        raise ValueError(f"number: expected a whole number from 0 to {count - 1}, got {number}")
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
        task, model = task_of(run), cast("WaveNet", run.model)
        labels = task.labels
        if (request.label is not None) != bool(labels) or not 0 <= (request.label or 0) < len(labels or "_"):
            raise ValueError(f"label: expected {f'0 to {len(labels) - 1}' if labels else 'none'}")
        try:
            amplitudes = np.frombuffer(b64decode(request.prompt, validate=True), "<i2") / 32768
        except ValueError:
            raise ValueError("prompt: expected 16-bit samples in base64") from None
        prompt = torch.from_numpy(task.levels.encode(amplitudes)).unsqueeze(0)
        self._left = round(request.seconds * task.rate)
        if not 0 < self._left + prompt.shape[1] <= _LONGEST * task.rate:
            raise ValueError(f"seconds: expected a sound of at most {_LONGEST} s, the prompt included")
        context = None if request.label is None else torch.tensor([request.label])
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
        is_drawn, until, draws = not self._parts, monotonic() + _SECONDS, list[Tensor]()
        while is_drawn and self._left and (not draws or monotonic() < until):
            draws.append(next(self._drawn))
            self._left -= 1
        levels = torch.stack(draws, 1) if is_drawn else self._parts.pop(0)
        with torch.no_grad():
            conditionals, self._state = self._model.unroll(levels, self._state, self._last)
            nats = -conditionals.log_prob(levels)[0]
        self._last = levels[:, -1]
        return {
            "samples": _written(self._levels.decode(levels[0].numpy())),
            "nats": b64encode(nats.float().numpy().astype("<f4").tobytes()).decode(),
            "drawn": is_drawn,
        }
