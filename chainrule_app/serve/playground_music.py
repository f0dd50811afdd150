"""Music of the playground: pieces read and drawn as notes, with the surprise of each note and frame."""

from typing import Annotated, Any, cast

import numpy as np
import torch
from fastapi import APIRouter, Request
from pydantic import Field

from chainrule.modes import device_of
from chainrule_app.readers.piano_rolls import LOWEST
from chainrule_app.run import Run
from chainrule_app.serve.playground_media import check_number
from chainrule_app.serve.views import Body, Count, NumberBody, Seed, Temperature, TopP, Views
from chainrule_app.tasks.music.task import MusicTask, frame_surprise

_EXAMPLES = 16  # held-out pieces
_SECONDS = 20  # of a held-out piece


class PieceBody(Body):
    """A piece to draw; after the first frames of a held-out piece, where a number is given."""

    seconds: Annotated[float, Field(gt=0, le=60)] = 12
    after: Count | None = None
    temperature: Temperature = 1.0
    top_p: TopP = None
    seed: Seed = 0


def music_router(views: Views) -> APIRouter:
    """Return the routes of runs of music."""
    router = APIRouter()

    @router.post("/music")
    async def music(body: PieceBody, request: Request) -> Any:
        return await views.answer(request, draw_piece, views.run(body, "music"), body)

    @router.post("/music-example")
    async def music_example(body: NumberBody, request: Request) -> Any:
        return await views.answer(request, example_piece, views.run(body, "music"), body.number)

    return router


def _music_task(run: Run) -> MusicTask:
    return cast("MusicTask", run.task)


def about_music(run: Run) -> dict[str, Any]:
    """Return how many held-out pieces there are."""
    task = _music_task(run)
    return {"examples": min(_EXAMPLES, task.facts.valid.pieces) if task.is_prepared() else 0}


def example_piece(run: Run, number: int) -> dict[str, Any]:
    """Return the beginning of a held-out piece."""
    return _piece(run, _held_out(run, number, _SECONDS), 0)


def _held_out(run: Run, number: int, seconds: float) -> torch.Tensor:
    check_number(number, about_music(run)["examples"])
    task = _music_task(run)
    roll = task.music["valid"].roll(number)
    return torch.from_numpy(np.array(roll[: max(1, round(seconds / task.seconds(1)))]))


def draw_piece(run: Run, body: PieceBody) -> dict[str, Any]:
    """Draw a piece."""
    task, model = _music_task(run), cast(Any, run.model)
    prompt = None if body.after is None else _held_out(run, body.after, body.seconds / 2)
    device = device_of(model)
    drawn = model.sample(
        1,
        length=max(1, round(body.seconds / task.seconds(1)), 0 if prompt is None else len(prompt) + 1),
        prefix=None if prompt is None else prompt.float().unsqueeze(0).to(device),
        temperature=body.temperature,
        top_p=body.top_p,
        generator=torch.Generator(device).manual_seed(body.seed),
    )[0]
    return _piece(run, drawn.cpu(), 0 if prompt is None else len(prompt))


def _piece(run: Run, roll: torch.Tensor, given: int) -> dict[str, Any]:
    """Describe a piano roll (T, 88).

    Returns:
        `notes`: [first frame, frame after the last, MIDI number, nats of its key in the first frame] each; `nats` of
        each frame; `given`: frames that were not drawn; `frame`: seconds of one.
    """
    down = np.pad(roll.numpy() > 0, ((1, 1), (0, 0))).astype(np.int8)
    steps = np.diff(down, axis=0).T  # (88, T + 1)
    nats = frame_surprise(cast(Any, run.model), roll, by_key=True)
    notes = [
        [int(start), int(stop), key + LOWEST, round(float(nats[start, key]), 3)]
        for key, changes in enumerate(steps)
        for start, stop in zip(np.flatnonzero(changes > 0), np.flatnonzero(changes < 0), strict=True)
    ]
    of_frames = nats.sum(1).round(3).tolist()
    return {"notes": sorted(notes), "nats": of_frames, "given": given, "frame": _music_task(run).seconds(1)}
