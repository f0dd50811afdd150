"""Measurement of a model's training speed, from which the planner derives sizes for a budget."""

from functools import partial
from statistics import median
from time import monotonic, perf_counter

import torch
from torch.optim import Optimizer

from chainrule._base import TrainableModel
from chainrule.modes import seed_torch
from chainrule.training._batch import Batch
from chainrule.training._computation import Computation
from chainrule.training._evaluate import Objective
from chainrule.training._gradients import Gradients
from chainrule.training._parallel import Processes, own_randomness

_WARM_UP = 2  # steps
_FEWEST = 4  # steps to measure, unless they take too long
_LONGEST = 5.0  # times the seconds to measure
_UNTIL_LAUNCHED = 3.0  # seconds in which a GPU takes the steps before it launches recorded ones, at most


def steps_per_second(
    model: TrainableModel, optimiser: Optimizer, batch: Batch, way: Computation, seconds: float, device: torch.device
) -> float:
    """Measure training steps per second of a model on `device`, warm, in about `seconds`.

    The first two steps do not count: they load and compile kernels, which may take a hundred times as long as a step.
    Nor do a GPU's steps before it launches recorded ones (`Gradients`), which nearly all steps of a training are. At
    least `_FEWEST` steps count, unless they take more than `_LONGEST * seconds`, and one in any case.

    The model is afterwards as it was, and the optimiser as new, so that both can be trained.
    """
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    mode = model.training
    with own_randomness(device), way.applied_to(model):
        gradients = Gradients(Objective(model.train(), way.dtype), model, Processes(0, 1, device), 1.0)
        for _ in range(_WARM_UP):
            _take_step(optimiser, batch, gradients)
        began = monotonic()
        while gradients.may_launch(batch) and not gradients.launched and monotonic() < began + _UNTIL_LAUNCHED:
            _take_step(optimiser, batch, gradients)
        durations = [_take_step(optimiser, batch, gradients)]
        while sum(durations) + durations[-1] <= (seconds if len(durations) >= _FEWEST else _LONGEST * seconds):
            durations.append(_take_step(optimiser, batch, gradients))
    model.train(mode).load_state_dict(weights)
    optimiser.state.clear()
    return 1 / median(durations)


def _take_step(optimiser: Optimizer, batch: Batch, gradients: Gradients) -> float:
    began = perf_counter()
    nats = gradients(batch, None, 1.0, partial(seed_torch, 0)).nats
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    nats.item()
    return perf_counter() - began
