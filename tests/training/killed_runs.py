"""Run as a script: trains in forked children that are each killed (SIGKILL) at a moment of their own.

Usage: killed_runs.py DIRECTORY MOMENT...
The run of MOMENT is in DIRECTORY/MOMENT; the exit status is 0 if every child was killed.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from kill_moments import at_a_rename, die, half_written
from training_toy import ToyModel, ToyStream, held_out, options

from chainrule.training import train
from chainrule.training._optimiser import AdamW


def die_in_step(number: int) -> None:
    """In the middle of the optimiser's update."""
    take, taken = AdamW.step, [0]

    def step(self: AdamW) -> None:
        taken[0] += 1
        take(self)
        if taken[0] == number:
            die()

    AdamW.step = step


# Renames: 1 metrics.jsonl at the beginning, 2 a checkpoint before the first weights, then at steps 4, 8, 12 and 16
# model.safetensors and checkpoint.safetensors.
MOMENTS: dict[str, Callable[[], None]] = {
    "before-the-first-checkpoint": lambda: die_in_step(3),
    "in-an-update": lambda: die_in_step(7),
    "in-a-later-epoch": lambda: die_in_step(15),
    "between-the-first-weights-and-their-checkpoint": lambda: at_a_rename(3, after=True),
    "between-weights-and-checkpoint": lambda: at_a_rename(5, after=True),
    "before-a-checkpoint-is-renamed": lambda: at_a_rename(6, after=False),
    "after-a-checkpoint-is-renamed": lambda: at_a_rename(6, after=True),
    "in-a-half-written-checkpoint": lambda: half_written(5),
    "in-half-written-weights": lambda: half_written(6),
}


def main(directory: Path, moments: list[str]) -> int:
    torch.set_num_threads(1)
    for moment in moments:
        child = os.fork()
        if child == 0:
            MOMENTS[moment]()
            train(ToyModel(), ToyStream(), held_out, options(), directory / moment, progress=False)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
