"""Several processes that answer on one socket: each reads the runs for itself, and one that dies is replaced."""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from chainrule.option_error import UserError, option


def serve_in_processes(paths: Mapping[str, Path], listening: socket.socket, number: int, **options: Any) -> None:
    """Serve runs with some processes until Ctrl-C or SIGTERM; see `chainrule_app.serve.server.serve_runs`.

    Raises:
        UserError: one of them ends before it has read the runs.
    """
    context = multiprocessing.get_context("spawn")
    processes: dict[Any, Any] = {}  # with events of having read the runs
    stopping, failed = False, None

    def begin(*, first: bool) -> None:
        ready = context.Event()
        own = {**options, "announce": first, "open_page": first and options["open_page"]}
        process = context.Process(target=_serve, args=(paths, listening, number, ready, own))
        process.start()
        processes[process] = ready

    def tell(which: int, _: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, which)

    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, tell)
    for index in range(number):
        begin(first=index == 0)
    while processes:
        wait([process.sentinel for process in processes])
        for process in [process for process in processes if not process.is_alive()]:
            ready, how = processes.pop(process), f"process {process.pid} ended with status {process.exitcode}"
            if stopping:
                continue
            if ready.is_set():
                print(f"{how}: another takes its place", file=sys.stderr, flush=True)
                begin(first=False)
            else:
                failed = how
                tell(signal.SIGTERM, None)
    if failed:
        raise UserError(failed, f"if memory was short, pass a smaller {option('workers')}")
    print("Stopped.")


def _serve(
    paths: Mapping[str, Path], listening: socket.socket, number: int, ready: Any, options: dict[str, Any]
) -> None:
    import torch

    from chainrule_app.fitting import load
    from chainrule_app.serve.server import serve_runs

    Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // number))
    runs = {name: load(path) for name, path in paths.items()}
    ready.set()
    serve_runs(runs, listening, **options)


def _follow() -> None:
    """End when the first process does, even one that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
