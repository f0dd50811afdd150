"""Run a Python program whose clock is its processor time, so that other work on the machine takes none of its budget.

    python benchmarks/processor_clock.py 1 -m chainrule train poem.txt --budget 30s
    python benchmarks/processor_clock.py 3 script.py ...

The first argument is what a second of processor time counts: with 3, the program finds itself on a machine that is
three times slower.
"""

import argparse
import os
import queue  # noqa: F401  # keeps the real clock, which it has taken by then
import resource
import runpy
import subprocess  # noqa: F401  # likewise
import sys
import threading  # noqa: F401  # likewise
import time
from pathlib import Path


def launched(arguments: list[str], factor: float | None = 1) -> list[str]:
    """Return the command that runs `python ARGUMENTS` by this clock, or by the wall's without a factor."""
    return [sys.executable, *([] if factor is None else [__file__, f"{factor:g}"]), *arguments]


def processor_seconds() -> float:
    """Return the processor time of all children that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factor", type=float)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what follows `python` in a command")
    options = parser.parse_args()
    if not options.program:
        parser.error("expected a script, or -m and a module, got none")

    def clock() -> float:
        return float(options.factor * time.process_time())

    os.environ["PROCESSOR_CLOCK"] = f"{options.factor:g}"  # for the command of what is published
    time.monotonic = time.perf_counter = clock  # type: ignore[assignment]  # built-in functions are replaced
    if options.program[0] == "-m":
        sys.argv = options.program[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = options.program
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
