"""The exact likelihood of held-out data."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from chainrule.base import TrainableModel
from chainrule.state import State, map_state
from chainrule.training import units
from chainrule.training.batch import Batch, count_elements
from chainrule.training.objective import Objective
from chainrule.training.randomness import own_randomness

_SEED = 0


@dataclass(frozen=True)
class Evaluation:
    """The likelihood of some data; every element weighs the same, however it was batched.

    Args:
        nats: negative log-likelihood of all elements together.
        elements: how many there are, ends of sequences included.
    """

    nats: float
    elements: int

    @property
    def nats_per_element(self) -> float:
        return units.per_element(self.nats, self.elements)

    @property
    def bits_per_element(self) -> float:
        return units.bits(self.nats_per_element)

    @property
    def perplexity(self) -> float:
        return units.perplexity(self.nats, self.elements)


def evaluate(model: TrainableModel, batches: Iterable[Batch]) -> Evaluation:
    """Score batches in order, in float32, carrying the state from chunk to chunk; the model's mode is put back after.

    Raises:
        ValueError: there is nothing in the batches.
    """
    return evaluations(model, batches)[-1]


@torch.no_grad()
def evaluations(model: TrainableModel, batches: Iterable[Batch]) -> list[Evaluation]:
    """`evaluate` of the first batch, of the first two, and so on to all of them.

    A model that draws, for a bound, has the same draws every time, so that validations differ by the model alone.
    """
    device = next(model.parameters(), torch.empty(0)).device
    objective = Objective(model)
    training = model.training
    model.eval()
    read: list[Evaluation] = []
    try:
        total, elements, state = 0.0, 0, None  # a float32 sum of many chunks would lose digits
        with own_randomness(device):
            torch.manual_seed(_SEED)
            for batch in batches:
                nats, state = score(objective, batch, state, device)
                total += nats.item()
                elements += count_elements(batch)
                read.append(Evaluation(total, elements))
    finally:
        model.train(training)
    if not read or read[-1].elements == 0:
        raise ValueError("batches: expected at least one element to evaluate, got none: the held-out data is empty")
    return read


def score(
    objective: torch.nn.Module, batch: Batch, state: State, device: torch.device, progress: float = 1.0
) -> tuple[torch.Tensor, State]:
    """The nats of one batch on `device`, and the state after it; `progress` is how much of the run is done."""
    x = batch.x.to(device, non_blocking=True)
    lengths = None if batch.lengths is None else batch.lengths.to(device, non_blocking=True)
    previous = None if batch.previous is None else batch.previous.to(device, non_blocking=True)
    context = map_state(lambda leaf: leaf.to(device, non_blocking=True), batch.context)
    result: tuple[torch.Tensor, State] = objective(
        x, lengths, previous, state, context, whole=batch.whole, progress=progress
    )
    return result
