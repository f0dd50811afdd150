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
from types import FrameType
from typing import Any

MEMORY = 3 << 30  # bytes of address space beyond what the imports take
SECONDS = 30  # of CPU time


class TooLongError(BaseException):
    """A command line used up its time."""


def run(arguments: list[str]) -> dict[str, Any]:
    """Run one command line in this process."""
    from chainrule.cli.main import main

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
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
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)  # type: ignore[attr-defined] # BytesIO
    return {"status": status, "out": out, "err": err, "failure": failure}


def too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def main() -> None:
    import matplotlib.figure  # noqa: F401 - loaded before memory is limited
    import torch

    import chainrule.models
    import chainrule.training  # noqa: F401

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
