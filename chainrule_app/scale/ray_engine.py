"""Processes of a Ray cluster that compute shards.

Actors and not Ray Data: its blocks follow from sizes in bytes and from its own readers, so that rows would be computed
in other batches and read with other types than in one process, and its jobs begin again when their driver is killed.
A shard is asked for by its number, so that the answer is the same whoever gives it, and however often.
"""

import heapq
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from typing import Any

from chainrule.option_error import OptionError, PeerError, UserError, option, raw_text
from chainrule_app.printing import WRITE_OPTION
from chainrule_app.readers import copies
from chainrule_app.scale.shards import Failure, Outcomes, Shard, ShardWorker, Target
from chainrule_app.scale.workers import Job
from chainrule_app.tasks.remote_run import copy_to_work_in

_DEATHS = 5  # of workers that began, or that computed one shard
_STORE = 100 << 20  # bytes of memory for objects: the answers are in files
_ALONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")  # one thread


def import_ray() -> Any:
    """Return Ray's module."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of what it will do one day
    try:
        import ray
    except ImportError:
        raise OptionError("engine", "requires Ray, of the extra scale", "pip install 'ray[data,train]'") from None
    return ray


@contextmanager
def cluster(address: str | None, processes: int | None) -> Iterator[int]:
    """Join a cluster, or start one on this machine, during the block; yield the number of processes to run on it.

    Args:
        address: of a cluster; by default that of the variable RAY_ADDRESS, or none.
        processes: number asked for; by default one for each core.
    """
    ray = import_ray()
    address = address or os.environ.get("RAY_ADDRESS") or None
    if ray.is_initialized():  # by the program that called this
        yield processes or _cores(ray)
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # this cluster is ours, and sends no statistics
        os.environ.setdefault("RAY_worker_niceness", "0")  # as other processes of this machine; 15 by default
        settings |= {"include_dashboard": False, "object_store_memory": _STORE, "num_cpus": processes}
    try:
        ray.init(address or "local", **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise OptionError("address", f"no cluster answers at {address or 'this machine'} ({text:.120})") from None
    try:
        yield processes or _cores(ray)
    finally:
        ray.shutdown()


def _cores(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


class RayWorkers:
    """Actors that compute the shards of a job; where one ends, another computes its shard.

    Args:
        job: what they compute.
        target: folder of the shards, which all machines share.
        batches: of a shard.
        number: of actors, with a core each.
    """

    def __init__(self, job: Job, target: Target | None, batches: int, number: int):
        self._ray = import_ray()
        self._class = self._ray.remote(num_cpus=1, runtime_env={"env_vars": _ALONE})(_Actor)
        self._arguments = job, target, batches, Path.cwd()
        self._number = number
        self._tasks: dict[Any, tuple[Any, int | None]] = {}  # the actor and the shard of each call
        self._actors = list[Any]()  # all that were started: one whose shard failed has no call
        self._deaths = Counter[int | None]()

    def __call__(self, numbers: Iterator[int]) -> Outcomes:
        """Compute shards; an executor."""
        again = list[int]()
        for _ in range(self._number):
            self._start()
        while self._tasks:
            (call,), _ = self._ray.wait(list(self._tasks))
            actor, number = self._tasks.pop(call)
            try:
                outcome: Shard | Failure | None = self._ray.get(call)
            except self._ray.exceptions.RayActorError as error:
                self._died(number, error)
                if number is not None:
                    heapq.heappush(again, number)
                self._start()
                continue
            if number is None:
                self._deaths[None] = 0
            elif outcome is not None:
                yield number, outcome
            following = heapq.heappop(again) if again else next(numbers, None)
            if following is None:
                self._ray.kill(actor)
            else:
                self._tasks[actor.compute.remote(following)] = actor, following

    def _start(self) -> None:
        actor = self._class.remote(*self._arguments)
        self._actors.append(actor)
        self._tasks[actor.ready.remote()] = actor, None

    def _died(self, number: int | None, error: Exception) -> None:
        self._deaths[number] += 1
        if self._deaths[number] < _DEATHS:
            return
        reason = str(error).strip().splitlines()[-1].strip()
        what = "could not start" if number is None else f"ended while they computed shard {number}"
        raise UserError(
            f"{_DEATHS} workers {what} ({reason:.150})", f"if memory was short, pass a smaller {option('workers')}"
        )

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors:
            with suppress(Exception):  # of one that has ended
                self._ray.kill(actor)
        self._tasks.clear()


class _Actor:
    """A process of the cluster that computes shards."""

    def __init__(self, job: Job, target: Target | None, batches: int, folder: Path):
        with suppress(OSError):  # relative paths mean the same here, where the folder is there too
            os.chdir(folder)
        import torch

        torch.set_num_threads(1)
        self._worker = ShardWorker(job, target, batches)

    def ready(self) -> None:
        """Answer when this process has started."""

    def compute(self, number: int) -> Shard | Failure:
        return self._worker.compute(number)


_RESTARTS = 10  # of a training whose processes were killed
_LOOKS = 0.5  # seconds between two looks at what the first process prints


def train(
    task: Any, request: Any, out: Path, given: frozenset[str], *, plain: bool, processes: int, gpu: bool
) -> tuple[Any, Any]:
    """Train a run, or go on with it, in processes of the cluster; return what `train_run` does.

    Every process calls `train_run`, as under torchrun. Where one is killed, all start again from the last checkpoint.
    A run behind a URL is trained in its copy, in a folder that the machines share.
    """
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # which prints lines twice
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    local = copy_to_work_in(out).absolute()
    notes = local.with_name(f".{local.name}.ray")
    notes.mkdir(parents=True, exist_ok=True)
    settings = {
        "arguments": (task, request, out, given),
        "options": {"plain": plain, "resume": None},
        "folder": Path.cwd(),
        "printed": notes / "printed",
        "write": WRITE_OPTION.get(),
        "copies": str(copies.root()),
    }
    trainer = TorchTrainer(
        _train,
        train_loop_config=settings,
        scaling_config=ScalingConfig(num_workers=processes, use_gpu=gpu),
        run_config=RunConfig(
            name="training", storage_path=str(notes), failure_config=FailureConfig(max_failures=_RESTARTS)
        ),
    )
    try:
        with _shown(notes / "printed"):
            finished: Any = trainer.fit()
    finally:
        rmtree(notes, ignore_errors=True)
    outcome = finished.return_value
    if isinstance(outcome, PeerError):  # the error of another process than the first
        raise UserError(raw_text(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    return task.open(local), outcome


@contextmanager
def _shown(path: Path) -> Iterator[None]:
    """Show what the first process prints into a file during the block.

    Ray would put the name of a process before each line, and its own warnings between them.
    """
    ended = Event()

    def follow() -> None:
        with path.open("a+", encoding="utf-8", errors="replace") as file:
            file.seek(0)
            while True:
                last = ended.wait(_LOOKS)
                sys.stderr.write(file.read())
                sys.stderr.flush()
                if last:
                    return

    thread = Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _train(settings: dict[str, Any]) -> Any:
    """Train in this process; a mistake of the user is returned, for Ray starts again after what is raised."""
    from chainrule_app.training_run import train_run

    with suppress(OSError):
        os.chdir(settings["folder"])
    WRITE_OPTION.set(settings["write"])
    os.environ[copies.CACHE] = settings["copies"]
    logging.getLogger().setLevel(logging.WARNING)  # Ray shows what all libraries note
    first = os.environ.get("RANK", "0") == "0"
    with open(settings["printed"] if first else os.devnull, "a", buffering=1) as file, redirect_stderr(file):
        try:
            return train_run(*settings["arguments"], **settings["options"])[1]
        except (ValueError, OSError) as error:
            return error
