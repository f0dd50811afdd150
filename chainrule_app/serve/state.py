"""State shared by the routes: the runs, an engine for each run of texts, limits, and threads for everything else."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import HTTPException

from chainrule import AutoregressiveModel
from chainrule_app.fitting import load
from chainrule_app.run import Run
from chainrule_app.serve.calls import Calls
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.guard import Limits
from chainrule_app.serve.together import Together
from chainrule_app.tasks.run_directory import WEIGHTS, is_locked

T = TypeVar("T")


class ServerState:
    """State shared by the routes; the models of all runs are read when it is made, or when their training has ended.

    `device` is where calls compute: auto, cpu, cuda or mps. Texts are drawn there too, with auto on the processor.
    """

    def __init__(self, runs: Mapping[str, Run], limits: Limits, device: str = "auto", *, asks_token: bool = False):
        self.device, self.asks_token = device, asks_token
        self.limits, self.paths = limits, [run.path for run in runs.values()]
        self.training = {name: run for name, run in runs.items() if is_locked(run.path)}  # which has no model yet
        self.runs: dict[str, Run] = {}
        self.engines: dict[str, Engine] = {}
        self.add({name: run for name, run in runs.items() if name not in self.training})
        self._calls, self.together = Calls(limits), Together()
        self.draining = False  # whether new requests are refused, because the server will stop

    @property
    def alive(self) -> bool:
        """True if all workers live."""
        return self._calls.alive and all(engine.alive for engine in self.engines.values())

    @property
    def loading(self) -> bool:
        """True if compiled loops are still being loaded, which cannot be stopped."""
        return any(engine.loading.is_alive() for engine in self.engines.values())

    @property
    def waiting(self) -> int:
        """Calls that are made or wait."""
        return self._calls.waiting

    @property
    def idle(self) -> bool:
        """True if no text is being drawn, and no call is made or waits."""
        return not self.waiting and not any(engine.active for engine in self.engines.values())

    def trained(self) -> dict[str, Run]:
        """Return the runs whose training has ended since the server began, with their models."""
        waiting = {name: run.path for name, run in self.training.items() if name not in self.runs}
        ended = {
            name: load(path) for name, path in waiting.items() if (path / WEIGHTS).is_file() and not is_locked(path)
        }
        for run in ended.values():
            run.model  # noqa: B018  which reads it
        return ended

    def add(self, runs: Mapping[str, Run]) -> None:
        """Serve runs; called in the thread of the server alone."""
        for name, run in runs.items():
            if name in self.runs:
                continue
            if isinstance(run.model, AutoregressiveModel) and run.task.name == "text":
                device = run.task.device("cpu" if self.device == "auto" else self.device)
                self.engines[name] = Engine(run, self.limits, device)
            self.runs[name] = run

    def run(self, name: str) -> Run:
        """Return the run of a name.

        Raises:
            HTTPException: no run has this name.
            ChangedRunError: its files are no longer those that the server began with; answered with 503.
        """
        if name not in self.runs and name in self.training:
            self.add(self.trained())  # another process of this server may have told of its end
            if name not in self.runs:
                raise HTTPException(503, "this run is in training: the page shows its progress")
        if name not in self.runs:
            raise HTTPException(404, f"no run is called {name!r:.80}; there are: {', '.join(self.runs) or 'none'}")
        self.runs[name].task.check_unchanged()
        return self.runs[name]

    def engine(self, name: str | None) -> tuple[str, Engine]:
        """Return the engine of a run of a text, and its name; of the only one where no run is named.

        Raises:
            HTTPException: no such run has this name, or none is named and there are several.
            ChangedRunError: see `run`.
        """
        name = next(iter(self.engines)) if name is None and len(self.engines) == 1 else name
        if name is None or name not in self.engines:
            what = "name a run of a text" if name is None else f"no run of a text is called {name!r:.80}"
            raise HTTPException(404, f"model: {what}; there are: {', '.join(self.engines) or 'none'}")
        self.run(name)
        return name, self.engines[name]

    async def call(self, function: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call a function in another thread; see `Calls.call`."""
        return await self._calls.call(function, *args, **options)

    def close(self) -> None:
        """End the workers."""
        self._calls.close()
        for engine in self.engines.values():
            engine.close()
