"""Measurement of a model's training speed, from which the planner derives sizes for a budget."""

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

_POOL = 16  # number of batches to compare


def average_batch(batches: TrainingBatches) -> Batch:
    """Return the batch of a run's first batches whose size is closest to their mean (the first of ties)."""
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
    """Measure training steps per second on a copy of a model for at most `seconds`, ignoring the slow first step."""
    durations: list[float] = []
    with own_randomness(device):
        trial = copy.deepcopy(model).to(device).train()
        updates, began = make_optimiser(trial, 0.0, 0.0, optimiser), monotonic()
        with computing(trial, way):
            while not durations or monotonic() + durations[-1] - began <= seconds:
                durations.append(_take_step(trial, updates, batch, way, device))
    return 1 / median(durations[1:] or durations)


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
