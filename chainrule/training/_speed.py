"""The speed of a model's training steps here, from which sizes for a budget follow; nothing else depends on it."""

import copy
from statistics import mean, median
from time import monotonic, perf_counter

import torch

from chainrule._base import TrainableModel
from chainrule.state import leaves
from chainrule.training._computation import Computation, computing
from chainrule.training._evaluate import Batch, Objective, TrainingBatches, count_elements, score
from chainrule.training._optimiser import Kind, clip_gradient, make_optimiser
from chainrule.training._parallel import own_randomness

_POOL = 16  # batches whose sizes are compared


def average_batch(batches: TrainingBatches) -> Batch:
    """The batch, among a run's first, whose size is nearest to their mean; of equal ones the first."""
    pool = map(batches.at, range(_POOL))
    sizes = [sum(part.numel() for part in leaves((batch.x, batch.context))) for batch in pool]
    average = mean(sizes)
    return batches.at(min(range(_POOL), key=lambda step: abs(sizes[step] - average)))


def steps_per_second(
    model: TrainableModel,
    batch: Batch,
    way: Computation,
    seconds: float,
    device: torch.device,
    optimiser: Kind = "adamw",
) -> float:
    """Training steps per second of a model, optimiser included, taken on a copy of it.

    The first step is not counted where there is time for another: first steps are slow.

    Args:
        model: left as it is, and so is torch's random state.
        batch: whose rows begin with it, as those of the first batch of a run do.
        way: how to compute.
        seconds: not to be exceeded by more than a step.
        device: where to compute.
        optimiser: that updates the weights.
    """
    taken: list[float] = []
    with own_randomness(device):
        trial = copy.deepcopy(model).to(device).train()
        updates, began = make_optimiser(trial, 0.0, 0.0, optimiser), monotonic()
        with computing(trial, way):
            while not taken or monotonic() + taken[-1] - began <= seconds:
                taken.append(_take_step(trial, updates, batch, way, device))
    return 1 / median(taken[1:] or taken)


def _take_step(
    model: TrainableModel, optimiser: torch.optim.Optimizer, batch: Batch, way: Computation, device: torch.device
) -> float:
    began = perf_counter()
    nats, _ = score(Objective(model, way.dtype), batch, None, device)
    (nats / count_elements(batch)).backward()
    clip_gradient(model, 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    nats.item()
    return perf_counter() - began
