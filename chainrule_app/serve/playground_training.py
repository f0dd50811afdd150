"""Runs in training of the playground: what the trainer has written so far, and a request to stop."""

import json
import os
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from fastapi import APIRouter, HTTPException, Request

from chainrule.training import read_samples
from chainrule_app.recorded import SAMPLES, TIMINGS, read_timings
from chainrule_app.serve.listening import is_local
from chainrule_app.serve.views import Body, Views
from chainrule_app.tasks.run_directory import CHECKPOINT, LOCK, METRICS, STOP, WEIGHTS, is_locked, sealed_record
from chainrule_app.tasks.task import Task

_MOST_POINTS = 300  # of the curve of training; of more, neighbours are averaged
_MOST_SAMPLES = 8


def training_router(views: Views) -> APIRouter:
    """Return the routes of runs that were in training when the server began."""
    router, state = APIRouter(), views.state
    watched = {name: Watched(run.task) for name, run in state.training.items()}

    def watched_run(name: str) -> Watched:
        if name not in watched:
            raise HTTPException(404, f"no run in training is called {name!r:.80}")
        return watched[name]

    def may_stop(request: Request) -> bool:
        return state.asks_token or (request.client is not None and is_local(request.client.host))

    @router.get("/training/{name}")
    async def training(name: str, request: Request) -> Any:
        found = await views.answer(request, watched_run(name).progress)
        return found | {"may_stop": may_stop(request)}

    @router.post("/stop-training")
    async def stop_training(body: Body, request: Request) -> Any:
        if not may_stop(request):
            raise HTTPException(403, "only this machine may stop a training, unless the server was given a --token")
        return await views.answer(request, watched_run(body.run).stop)

    return router


class Watched:
    """A run in training. Its metrics are read as far as they are written, each line once."""

    def __init__(self, task: Task[Any]):
        self._path, self._basis = Path(task.path), task.basis
        self._turn = Lock()
        self._forget()

    def _forget(self) -> None:
        self._file, self._place = 0, 0
        self._step = self._elements = 0
        self._curve, self._validations = Curve(), list[dict[str, Any]]()

    def progress(self) -> dict[str, Any]:
        """Describe the training so far.

        Returns:
            `curve`: [step, nats] of training; `validations`: [step, nats, whether it was the best so far]; `seconds`
            of training; `left`: those expected to come, None if unknown; the last `samples`; `training`: whether the
            trainer works; `stopping`: whether it was asked to stop; `trained`: whether there are weights.
        """
        in_training = is_locked(self._path)
        with self._turn:
            if (self._path / METRICS).is_file():
                self._read(self._path / METRICS)
            seconds, left = self._clock(in_training)
            return {
                "training": in_training,
                "stopping": in_training and (self._path / STOP).is_file(),
                "trained": (self._path / WEIGHTS).is_file(),
                "step": self._step,
                "elements": self._elements,
                "unit": self._basis.unit,
                "quantity": self._basis.quantity,
                "curve": self._curve.points,
                "validations": [
                    [record["step"], record["nats_per_element"], record.get("best", False)]
                    for record in self._validations
                ],
                "seconds": seconds,
                "left": left,
                "samples": read_samples(self._path / SAMPLES)[: -_MOST_SAMPLES - 1 : -1],
            }

    def stop(self) -> dict[str, Any]:
        """Ask the trainer to save and end."""
        if not is_locked(self._path):
            raise ValueError("the training of this run has ended")
        (self._path / STOP).touch()
        return {"stopping": True}

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._file or about.st_size < self._place:  # a resumed run writes its lines anew
                self._forget()
                self._file = about.st_ino
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self._place += len(line)
                self._take(json.loads(line))

    def _take(self, record: dict[str, Any]) -> None:
        self._step = max(self._step, record["step"])
        if record["event"] == "step":
            self._elements = record["elements"]
            self._curve.add(record["step"], record["nats_per_element"])
        elif record["event"] == "validation":
            self._validations.append(record)

    def _clock(self, in_training: bool) -> tuple[float | None, float | None]:
        """Return the seconds of training so far, and those expected to come."""
        if not in_training:
            checkpoint = self._path / CHECKPOINT
            return (sealed_record(checkpoint)["position"]["elapsed"] if checkpoint.is_file() else None), None
        files = [self._path / name for name in (LOCK, TIMINGS)]
        since = max(0.0, time() - max((file.stat().st_mtime for file in files if file.is_file()), default=time()))
        timings = [record for record in read_timings(self._path / TIMINGS) if record.get("progress")]
        if not timings:
            return since, None
        last = timings[-1]
        left = last["training_seconds"] * (1 / last["progress"] - 1) - since
        return last["elapsed"] + since, max(0.0, left)


class Curve:
    """The means of stretches of steps, which grow longer with the run, so that the points stay few."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []  # last step and mean of each stretch
        self._length, self._count, self._sum = 1, 0, 0.0

    def add(self, step: int, value: float) -> None:
        """Add the value of a step.

        >>> curve = Curve()
        >>> for step in range(1, 1201):
        ...     curve.add(step, step)
        >>> len(curve.points), curve.points[0], curve.points[-1]
        (300, (4, 2.5), (1200, 1198.5))
        """
        self._count, self._sum = self._count + 1, self._sum + value
        if self._count == self._length:
            self.points.append((step, self._sum / self._count))
            self._count, self._sum = 0, 0.0
        if len(self.points) == 2 * _MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(late, (first + second) / 2) for (_, first), (late, second) in pairs]
            self._length *= 2
