"""Run as a script: trains each task with dropout in children that are each killed (SIGKILL) at a moment of their own.

Usage: killed_trainings.py FOLDER KILLS TASK...; prints a line for each kill, and ends with status 1 if a resumed run
differs from the whole one. Every training and resumption has a process of its own, so that nothing is known about the
machine that the first step of a process finds out.
"""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "training"))

from kill_moments import at_a_rename, die, half_written
from small_data import SMALL_SIZES, WRITERS
from training_toy import remains

from chainrule.training._loop import TrainingLoop
from chainrule_app.cli.main import main as chainrule
from chainrule_app.tasks import task_class

STEPS, EVERY = 7, 3  # weights and checkpoints are written before the first validation, and after steps 3, 6 and 7
RENAMES = 7  # within the training, at least: of a checkpoint, and of weights and a checkpoint for each validation


def in_a_step(number: int) -> None:
    """After an update, before the step is counted."""
    step, taken = TrainingLoop._step, [0]

    def dying(loop: Any, progress: float) -> None:
        taken[0] += 1
        if taken[0] == number:
            update = loop._optimiser.step
            loop._optimiser.step = lambda: (update(), die())
        step(loop, progress)

    TrainingLoop._step = dying


MOMENTS: dict[str, Callable[[], None]] = {
    **{f"in step {number}": lambda number=number: in_a_step(number) for number in range(1, STEPS + 1)},
    **{
        f"{'after' if after else 'before'} rename {number}": lambda number=number, after=after: at_a_rename(
            number, after=after
        )
        for number in range(1, RENAMES + 1)
        for after in (False, True)
    },
    **{
        f"half of file {number} written": lambda number=number: half_written(number) for number in range(1, RENAMES + 1)
    },
}


def child(arguments: list[str], arm: Callable[[], None] | None = None) -> int:
    """Run a command line in a child, which is armed when its training begins; returns its exit status."""
    process = os.fork()
    if process == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        run = TrainingLoop.run

        def armed(loop: TrainingLoop) -> None:
            if arm is not None:
                arm()
            run(loop)

        TrainingLoop.run = armed
        os._exit(chainrule(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def with_dropout(task: str) -> list[str]:
    """The flags of dropout and of several networks, where the default model of a task has them."""
    options = next(iter(task_class(task).MODELS.values())).options.__dataclass_fields__
    flags = {"dropout": ["--dropout", "0.3"], "num_members": ["--num-members", "2"]}
    return [part for name, flag in flags.items() if name in options for part in flag]


def differing(task: str, folder: Path, kills: int) -> int:
    """Kill a task's training at some moments, and count the resumed runs that differ from the whole one."""
    folder.mkdir()
    arguments = [*map(str, WRITERS[task](folder)), *SMALL_SIZES[task].split(), *with_dropout(task)]
    arguments = ["train", *arguments, "--steps", str(STEPS), "--validate-every", str(EVERY)]
    assert child([*arguments, "--out", str(folder / "whole")]) == 0
    expected, found = remains(folder / "whole"), 0
    for moment in random.Random(task).sample(sorted(MOMENTS), kills):
        out = folder / moment.replace(" ", "-")
        killed = child([*arguments, "--out", str(out)], MOMENTS[moment])
        resumed = child(["train", "--resume", "--out", str(out)])
        same = resumed == 0 and remains(out) == expected
        found += not same
        print(f"{task}, {moment}: {'killed' if killed == -signal.SIGKILL else 'not killed'}, ", end="")
        print("resumed with the same bits" if same else f"DIFFERS (status {resumed})", flush=True)
    return found


def main(folder: Path, kills: int, tasks: list[str]) -> int:
    return min(1, sum(differing(task, folder / task, kills) for task in tasks or WRITERS))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
