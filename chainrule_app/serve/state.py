"""State shared by the routes: the runs, an engine for each run of texts, limits, and a thread for everything else."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from chainrule import AutoregressiveModel
from chainrule_app.run import Run
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.guard import Busy, Limits

T = TypeVar("T")


class ServerState:
    """State shared by the routes."""

    def __init__(self, runs: Mapping[str, Run], limits: Limits):
        self.runs, self.limits, self.paths = dict(runs), limits, [run.path for run in runs.values()]
        self.engines = {
            name: Engine(run, limits)
            for name, run in self.runs.items()
            if run.task == "text" and isinstance(run.model, AutoregressiveModel)
        }
        self.waiting = 0
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # A daemon, unlike the threads of an executor: a long call does not keep the server from ending.
        self._caller = Thread(target=self._work, name="chainrule calls", daemon=True)
        self._caller.start()

    @property
    def alive(self) -> bool:
        """True if all workers live."""
        return self._caller.is_alive() and all(engine.alive for engine in self.engines.values())

    async def call(self, function: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call a function in the thread of all work that is no stream of text, one call after the other.

        Raises:
            Busy: too many calls wait; answered with 429.
            TimeoutError: the limit of seconds has passed; answered with 504.
        """
        if self.waiting >= self.limits.waiting:
            raise Busy(f"{self.waiting} requests wait: try again in a moment")
        self.waiting += 1
        future, loop = Future[T](), asyncio.get_running_loop()
        future.add_done_callback(lambda _: _soon(loop, self._answered))
        self._calls.put((future, partial(function, *args, **options)))
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        finally:
            future.cancel()  # unless it has started

    def close(self) -> None:
        """End the workers."""
        self._calls.put(None)
        for engine in self.engines.values():
            engine.close()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

    def _answered(self) -> None:
        self.waiting -= 1


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed
        function()
