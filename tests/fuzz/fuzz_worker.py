"""A long-lived child process that runs command lines, each with limited memory and time, and reports how they ended.

Usage: fuzz_worker.py, with a JSON list of arguments on each line of standard input; a JSON object a line comes back.
"""

import io
import json
import os
import resource
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import Any

MEMORY = 3 << 30  # bytes of address space beyond what the imports take
SECONDS = 30  # of CPU time


class TooLongError(BaseException):
    """A command line used up its time."""


class Terminal(io.TextIOWrapper):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def run(arguments: list[str]) -> dict[str, Any]:
    """Run one command line in this process."""
    from chainrule_app.cli.main import main

    written = io.BytesIO(), io.BytesIO()
    streams = [
        make(buffer, encoding="utf-8", write_through=True)
        for make, buffer in zip((Terminal, io.TextIOWrapper), written, strict=True)
    ]
    failure, status = None, None
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            status = main(arguments)
    except TooLongError:
        failure = f"more than {SECONDS} s of CPU time"
    except BaseException:
        failure = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    out, err = (buffer.getvalue().decode("utf-8") for buffer in written)
    return {"status": status, "out": out, "err": err, "failure": failure}


def too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def main() -> None:
    import torch

    for name in ("matplotlib.figure", "chainrule.models", "chainrule.training"):
        import_module(name)  # before memory is limited
    torch.set_num_threads(1)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, too_long)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints by itself is no answer
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
