"""Batches, the training objective, the evaluation of a model, and units of likelihood."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context, TrainableModel
from chainrule._latent import LatentModel
from chainrule.modes import device_of, evaluating, seed_torch
from chainrule.state import State, detach, map_state
from chainrule.training._batch import Batch, count_elements
from chainrule.training._computation import autocast
from chainrule.training._parallel import is_divided, own_randomness

_SEED = 0  # seed of the draws for bounds


class Objective(nn.Module):
    r"""Negative log-likelihood of a batch, :math:`-\sum_{b,t} \log p(x_{bt} \mid x_{b,<t})`, in nats.

    In training mode it is minus the model's `training_objective` for whole sequences, and minus its `training_terms`
    for chunks, which may differ, for example by label smoothing. In evaluation mode it is the likelihood, or the
    evidence lower bound of a model that has no likelihood.

    Chunks of endless rows continue from the state after the previous chunk: the state crosses the boundary, gradients
    do not (truncated backpropagation through time, Williams and Peng 1990). Rows with lengths or a context, and `whole`
    rows, are whole sequences.

    It is a module so that DistributedDataParallel can wrap it, and `fully_shard` attach its hooks to it.

    Args:
        model: the model to train.
        dtype: number format of matrix products, see `multiply_dtype`.
    """

    def __init__(self, model: TrainableModel, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        previous: Tensor | None = None,
        state: State = None,
        context: Context = None,
        *,
        whole: bool = False,
        progress: float = 1.0,
        every_weight: bool = False,
    ) -> tuple[Tensor, State]:
        """Return the nats of a batch, (), and the detached state after it.

        Args:
            x: (B, T) elements.
            lengths: (B,) lengths of whole sequences; None for a chunk.
            previous: (B,) element before the chunk; None at the start of the rows.
            state: state after `previous`; ignored at the start of the rows.
            context: context of each row.
            whole: true if rows are whole sequences without lengths.
            progress: fraction of the run done, for objectives that change during training.
            every_weight: give every weight a gradient, also where a batch without elements reads none of them.
        """
        nats, state = self._nats(x, lengths, previous, state, context, whole=whole, progress=progress)
        if every_weight:  # those of the blocks that FSDP2 divides are read by calls, also of no rows
            read = [weight for weight in self.parameters() if weight.requires_grad and not is_divided(weight)]
            nats = nats + sum(0 * weight.sum() for weight in read)
        return nats, state

    def _nats(
        self, x: Tensor, lengths: Tensor | None, previous: Tensor | None, state: State, context: Context,
        *, whole: bool, progress: float,
    ) -> tuple[Tensor, State]:  # fmt: skip
        with autocast(self.dtype, x.device):
            if whole or lengths is not None or context is not None:
                return -self._maximised(x, context, lengths, progress).float().sum(), None
            if not isinstance(self.model, AutoregressiveModel):
                raise TypeError(f"expected batches of whole rows for a {type(self.model).__name__}, got chunks")
            if previous is None:
                state = self.model.initial_state(x.shape[0])
            if self.model.training:
                terms, state = self.model.training_terms(x, state, previous)
            else:
                conditionals, state = self.model.unroll(x, state, previous)
                terms = conditionals.log_prob(x)
            return -terms.float().sum(), detach(state)

    def _maximised(self, x: Tensor, context: Context, lengths: Tensor | None, progress: float) -> Tensor:
        if not self.model.training:
            return self.model.held_out_objective(x, context, lengths)
        if isinstance(self.model, LatentModel):
            return self.model.training_objective(x, context, lengths, progress=progress)
        return self.model.training_objective(x, context, lengths)


@dataclass(frozen=True)
class Evaluation:
    """Likelihood of some data, in which every element has the same weight.

    Args:
        nats: negative log-likelihood of all elements.
        elements: number of elements, including ends of sequences.
    """

    nats: float
    elements: int

    @property
    def nats_per_element(self) -> float:
        return per_element(self.nats, self.elements)

    @property
    def bits_per_element(self) -> float:
        return bits(self.nats_per_element)

    @property
    def perplexity(self) -> float:
        return perplexity(self.nats, self.elements)


def evaluate(model: TrainableModel, batches: Iterable[Batch]) -> Evaluation:
    """Score batches in order, in float32 and evaluation mode, carrying the state from chunk to chunk.

    Raises:
        ValueError: the batches are empty.
    """
    return evaluations(model, batches)[-1]


@torch.no_grad()
def evaluations(model: TrainableModel, batches: Iterable[Batch]) -> list[Evaluation]:
    """Evaluate the first batch, the first two, and so on; bounds use the same draws every time."""
    device = device_of(model)
    objective = Objective(model)
    read: list[Evaluation] = []
    total, elements, state = 0.0, 0, None  # a float32 sum of many chunks would lose digits
    with evaluating(model), own_randomness(device):
        seed_torch(_SEED)
        for batch in batches:
            nats, state = score(objective, batch, state, device)
            total += nats.item()
            elements += count_elements(batch)
            read.append(Evaluation(total, elements))
    if not read or read[-1].elements == 0:
        raise ValueError("batches: expected at least one element to evaluate, got none: the validation data is empty")
    return read


def score(
    objective: torch.nn.Module,
    batch: Batch,
    state: State,
    device: torch.device,
    progress: float = 1.0,
    *,
    every_weight: bool = False,
) -> tuple[torch.Tensor, State]:
    """Return the nats of a batch on `device`, and the state after it; see `Objective`."""
    x = batch.x.to(device, non_blocking=True)
    lengths = None if batch.lengths is None else batch.lengths.to(device, non_blocking=True)
    previous = None if batch.previous is None else batch.previous.to(device, non_blocking=True)
    context = map_state(lambda leaf: leaf.to(device, non_blocking=True), batch.context)
    result: tuple[torch.Tensor, State] = objective(
        x, lengths, previous, state, context, whole=batch.whole, progress=progress, every_weight=every_weight
    )
    return result


def bits(nats: float) -> float:
    r"""Convert nats to bits: :math:`\text{nats} / \ln 2`.

    >>> bits(math.log(8))
    3.0
    """
    return nats / math.log(2)


def per_element(nats: float, elements: int) -> float:
    """Average over elements."""
    if elements < 1:
        raise ValueError(f"elements: expected at least 1 to average over, got {elements}: the data is empty")
    return nats / elements


def perplexity(nats: float, elements: int) -> float:
    r"""Return the perplexity :math:`e^{\text{nats} / \text{elements}}`, infinite if a double cannot represent it.

    >>> round(perplexity(10 * math.log(27), 10), 6)
    27.0
    """
    mean = per_element(nats, elements)
    return math.exp(mean) if mean < 709 else math.inf


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run.

    Args:
        directory: run directory.
        step: number of weight updates.
        elements: number of training elements.
        elapsed: wall-clock seconds that count, including earlier sessions; see `TrainingOptions.budget`.
        steps_now: weight updates in this session; 0 if the run had already ended.
        best: best validation, whose weights are in `model.safetensors`.
        best_value: its metric; None if the likelihood decided.
        best_rows: number of validation rows behind the metric; 0 if the likelihood decided.
        best_step: step of the best validation.
        last: last validation.
        ended_by: "patience" after early stopping; "length" if steps, epochs or budget were used up.
    """

    directory: Path
    step: int
    steps_now: int
    elements: int
    elapsed: float
    best: Evaluation
    best_step: int
    best_value: float | None
    best_rows: int
    last: Evaluation
    ended_by: Literal["length", "patience"]
