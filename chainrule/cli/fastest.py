"""How a run computes its training steps: as is fastest on this machine, found once and kept in its config."""

import math
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from chainrule.tasks.config import ChosenComputation
from chainrule.tasks.task import Task

if TYPE_CHECKING:
    from chainrule.base import TrainableModel
    from chainrule.training import TrainingBatches
    from chainrule.training.computation import Computation
    from chainrule.training.parallel import Processes


def settle_computation(
    run: Task[Any], network: "TrainableModel", batches: "TrainingBatches", process_group: "Processes"
) -> "Computation":
    """The computation that the config names; else the fastest of those that the options leave open, written there.

    Several processes, and GPUs, take the usual one without timing.

    Args:
        run: its config is written where it named no computation.
        network: its model before training.
        batches: of this process.
        process_group: the processes that train it.
    """
    from chainrule.training.candidates import Choice, choose_computation, make_candidates, seconds_to_choose
    from chainrule.training.computation import Computation

    known = run.config.computation
    if known is not None:
        return Computation(known.threads, known.precision, known.backend)
    asked, duration = run.config.training, run.config.duration
    candidates = make_candidates(
        network, process_group.device, threads=asked.threads, precision=asked.precision, backend=asked.backend
    )
    choice = Choice(candidates.default)
    if process_group.world == 1 and candidates.parts:
        first = batches.at(0)
        steps = duration.steps or math.ceil((duration.epochs or 0.0) * batches.steps_per_epoch)
        seconds = seconds_to_choose(
            network, first, candidates.default, process_group.device, budget=duration.budget, steps=steps
        )
        choice = choose_computation(network, first, candidates, seconds, process_group.device)
    if process_group.first:
        print(choice, file=sys.stderr, flush=True)
        run.config = replace(
            run.config,
            computation=ChosenComputation(**asdict(choice.computation), elements_per_second=choice.elements_per_second),
        )
        run.write_config()
    return choice.computation
