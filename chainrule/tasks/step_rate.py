"""How fast this machine takes training steps of a model, found within a small share of a run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainrule.base import TrainableModel
    from chainrule.tasks.config import OptimisationOptions
    from chainrule.training.batch import Batch

ENOUGH_SECONDS = 0.5  # to time two ways
TRAINING_SHARE = 0.9  # of a budget goes into training steps


def seconds_to_measure(budget: float) -> float:
    """Seconds that measuring may take: 2% of a budget, and 2 at most."""
    from chainrule.training.candidates import MOST_SECONDS, SHARE

    return min(MOST_SECONDS, SHARE * budget)


def step_rate(model: "TrainableModel", batch: "Batch", training: "OptimisationOptions", seconds: float) -> float:
    """Training steps a second of a model here.

    In float32; where there is time for it, and the processor has it, in bfloat16 too, and the faster counts.

    Args:
        model: left as it is.
        batch: the first of a run.
        training: says the device, threads, precision and backend, as far as the user did.
        seconds: not to be exceeded by more than a step.
    """
    from chainrule.training.candidates import make_candidates, steps_per_second
    from chainrule.training.computation import Computation
    from chainrule.training.parallel import choose_device

    device = choose_device(training.device)
    candidates = make_candidates(
        model, device, threads=training.threads, precision=training.precision, backend=training.backend
    )
    ways = [Computation(candidates.threads[0], candidates.precision[-1], candidates.backend[0])]
    if len(candidates.precision) > 1 and seconds >= ENOUGH_SECONDS:
        backend = "vendor" if "vendor" in candidates.backend else candidates.backend[0]
        ways.append(Computation(candidates.threads[0], candidates.precision[0], backend))
    return max(steps_per_second(model, batch, ways, seconds, device))
