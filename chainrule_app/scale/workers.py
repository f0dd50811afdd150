"""Processes of this machine that answer the batches of one method of a run.

Each process opens the run and the data, computes with one thread, and passes over the batches of the others: reading
is cheap beside answering. The first process hands out the batches one by one and puts what comes back into their order.
So the result is, bit for bit, that of one process with one thread.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any

from chainrule.option_error import UserError, option
from chainrule_app.batchwise import Answered, Batch, Figures
from chainrule_app.results import Result

_AHEAD = 2  # batches that a process is told of in advance, so that it never waits for the next
_HELD = 8  # batches of each process that wait for an earlier one: bounds memory
_MODULES = ("torch", "polars", "chainrule.training", "chainrule_app.scale.workers", "chainrule_app.cli.divided")


@dataclass(frozen=True)
class Job:
    """A method of a run, and how to write its rows; it can be pickled."""

    run: Path
    method: str
    arguments: tuple[Any, ...]
    settings: dict[str, Any]
    write: Callable[[Result, list[Sequence[Any]], bool], bytes]  # of some rows; the flag tells if they are the first


@dataclass(frozen=True)
class Part:
    """The rows of a batch, written."""

    rows: int
    content: bytes


class Workers:
    """Processes that compute the batches of a job.

    Args:
        job: what they compute.
        number: of processes.
        patience: seconds in which this process computes alone. It goes on until one of the others is ready; with 0 it
            computes nothing.
    """

    def __init__(self, job: Job, number: int, patience: float = 0.0):
        self._job, self._number, self._patience = job, number, patience
        self._pipes: list[Any] = []
        self._processes: list[BaseProcess] = []
        self._waiting: dict[Any, int] = {}  # batches that each process that is ready has still to answer
        self.result: Result | None = None  # that this process makes of the job

    def answered(
        self, batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None]
    ) -> Iterator[Part]:
        """Yield the parts of all batches in their order; see `chainrule_app.batchwise.in_turn`."""
        begin, index = monotonic(), 0
        for index, batch in enumerate(batches):
            if monotonic() - begin >= self._patience and self._any_ready():
                break
            rows, figures = answer(batch)
            assert self.result is not None
            add(*figures)
            yield Part(len(rows), self._job.write(self.result, rows, index == 0))
        else:
            return
        done: dict[int, tuple[Figures, Part] | Exception | None] = {}
        told = index
        while True:
            for pipe in self._waiting:
                while self._waiting[pipe] < _AHEAD and told < index + _HELD * self._number:
                    with suppress(BrokenPipeError):  # reading from it tells why
                        pipe.send(told)
                    self._waiting[pipe], told = self._waiting[pipe] + 1, told + 1
            if index not in done:
                done |= self._received(None)
                continue
            found = done.pop(index)
            if isinstance(found, Exception):
                raise found
            if found is None:  # there is no such batch
                return
            index += 1
            add(*found[0])
            yield found[1]

    def _any_ready(self) -> bool:
        """Start the processes, or look if one of them can answer."""
        if not self._processes:
            self._start()
        self._received(0 if self._patience else None)
        return bool(self._waiting)

    def _start(self) -> None:
        context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
        if sys.platform != "win32":
            context.set_forkserver_preload(list(_MODULES))
        with _one_thread_each():
            for _ in range(self._number):
                mine, theirs = context.Pipe()
                process = context.Process(target=_work, args=(self._job, theirs), daemon=True)
                process.start()
                theirs.close()  # so that reading ends with the process
                self._pipes.append(mine)
                self._processes.append(process)

    def _received(self, timeout: float | None) -> dict[int, Any]:
        """Return what has come of batches, by their place; waits for something where there is no timeout."""
        found: dict[int, Any] = {}
        pipe: Any
        for pipe in wait(self._pipes, timeout):
            try:
                place, answered = pipe.recv()
            except (EOFError, ConnectionResetError):
                raise self._ended(self._pipes.index(pipe)) from None
            if place is not None:
                found[place] = answered
                self._waiting[pipe] -= 1
            elif answered is None:
                self._waiting[pipe] = 0
            else:
                raise answered
        return found

    def _ended(self, number: int) -> UserError:
        process = self._processes[number]
        process.join()
        code = process.exitcode or 0
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
        return UserError(
            f"process {number + 1} of {self._number} {how}: nothing was written",
            f"if memory was short, pass a smaller {option('workers')}",
        )

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let libraries that read these variables when they are imported use one thread."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(job: Job, pipe: Connection) -> None:
    """Answer batches until the first process has all that it needs and ends this one, or ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    import torch

    from chainrule_app.tasks import open_run

    torch.set_num_threads(1)
    worker = _Worker(job, pipe)
    with open(os.devnull, "w") as sys.stderr, suppress(BrokenPipeError, EOFError):
        try:
            run = open_run(job.run)
            run.answered = worker.answered
            worker.result = getattr(run, job.method)(*job.arguments, **job.settings)
            for _ in worker.result.stream():
                raise TypeError(f"{job.method}: rows beside those of its batches")
        except (BrokenPipeError, EOFError):
            raise
        except Exception as error:
            known = isinstance(error, (ValueError, OSError))  # what users can cause
            pipe.send((worker.place, error if known else RuntimeError(repr(error))))
            pipe.recv()  # an end of this process would be reported instead


class _Worker:
    """The answers of this process."""

    def __init__(self, job: Job, pipe: Connection):
        self._job, self._pipe = job, pipe
        self.result: Result | None = None
        self.place: int | None = None  # of the batch that is read or answered

    def answered(
        self, batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None]
    ) -> Iterator[Any]:
        ahead = enumerate(batches)
        self._pipe.send((None, None))  # ready
        while True:
            self.place = self._pipe.recv()
            batch = next((batch for place, batch in ahead if place == self.place), None)
            if batch is None:
                self._pipe.send((self.place, None))
                continue
            rows, figures = answer(batch)
            assert self.result is not None
            content = self._job.write(self.result, rows, self.place == 0)
            self._pipe.send((self.place, (figures, Part(len(rows), content))))
        yield  # type: ignore[unreachable]  # it makes this function a generator
