"""Batches, the negative log-likelihood of one, the exact likelihood of held-out data, and its units.

Nats are measured; all other figures of a likelihood that are reported are made here.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context, TrainableModel
from chainrule._latent import LatentModel
from chainrule._modes import device_of, evaluating
from chainrule.state import State, detach, map_state
from chainrule.training._computation import autocast
from chainrule.training._parallel import own_randomness

_SEED = 0  # of what a model draws for a bound


class Batch(Protocol):
    """Some elements of each of B rows: any object with these attributes.

    It is a protocol, which is not called; `chainrule.data.Batch` makes one of tensors, and the functions of
    `chainrule.data` make them of files.
    """

    @property
    def x(self) -> Tensor:
        """(B, T) elements, or whatever `whole` rows consist of."""

    @property
    def lengths(self) -> Tensor | None:
        """(B,) real elements of each row, where every row is a whole sequence; None for chunks of endless rows."""

    @property
    def previous(self) -> Tensor | None:
        """(B,) the element before x[:, 0]; None where the rows begin here, with no state to carry over."""

    @property
    def context(self) -> Context:
        """Condition of each row; rows with a context are whole sequences."""

    @property
    def whole(self) -> bool:
        """Whether the rows are whole sequences without lengths: images (B, C, H, W), labels (B,)."""


class TrainingBatches(Protocol):
    """Training data as a pure function of the step: exact resume needs no more than the step's number."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the data."""

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""


ValidationBatches: TypeAlias = Callable[[], Iterable[Batch]]


def count_elements(batch: Batch) -> int:
    """The elements that a batch asks a model to predict."""
    if batch.lengths is not None:
        return int(batch.lengths.sum())
    return batch.x.numel() if batch.whole else batch.x.shape[0] * batch.x.shape[1]


class Objective(nn.Module):
    r"""Negative log-likelihood of a batch, :math:`-\sum_{b,t} \log p(x_{bt} \mid x_{b,<t})`, in nats.

    For a model with a `training_objective` of its own, as label smoothing, minus that of whole sequences in training
    mode, and of chunks minus its `training_terms`; in evaluation mode it is always the likelihood, or the evidence
    lower bound of a model that has only that.

    Chunks of endless rows continue from the state that the last chunk ended in: its value crosses the boundary,
    gradients do not (truncated backpropagation through time, Williams and Peng 1990). Rows with lengths or a context,
    and those said to be whole, are whole sequences.

    It is a module so that DistributedDataParallel can wrap it.

    Args:
        model: the model that is trained.
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
    ) -> tuple[Tensor, State]:
        """The nats of a batch, (), and the detached state after it.

        Args:
            x: (B, T) elements.
            lengths: (B,) real elements of whole sequences; None for a chunk.
            previous: (B,) the element before the chunk; None where the rows begin here.
            state: the state after `previous`; unused where the rows begin here.
            context: condition of each row.
            whole: rows are whole sequences without lengths.
            progress: how much of the run is done, from 0 to 1, for objectives that change in its course.

        Raises:
            TypeError: chunks of endless rows for a model that cannot go on with them.
        """
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
    """The likelihood of some data; every element weighs the same, however it was batched.

    Args:
        nats: negative log-likelihood of all elements together.
        elements: how many there are, ends of sequences included.
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
    device = device_of(model)
    objective = Objective(model)
    read: list[Evaluation] = []
    total, elements, state = 0.0, 0, None  # a float32 sum of many chunks would lose digits
    with evaluating(model), own_randomness(device):
        torch.manual_seed(_SEED)
        for batch in batches:
            nats, state = score(objective, batch, state, device)
            total += nats.item()
            elements += count_elements(batch)
            read.append(Evaluation(total, elements))
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


def bits(nats: float) -> float:
    r"""Nats as bits: :math:`\text{nats} / \ln 2`.

    >>> bits(math.log(8))
    3.0
    """
    return nats / math.log(2)


def per_element(nats: float, elements: int) -> float:
    """The mean over elements, each weighing the same."""
    if elements < 1:
        raise ValueError(f"elements: expected at least 1 to average over, got {elements}: the data is empty")
    return nats / elements


def perplexity(nats: float, elements: int) -> float:
    r"""The number of equally likely symbols that would surprise as much: :math:`e^{\text{nats} / \text{elements}}`.

    Infinite where a double cannot hold it.

    >>> round(perplexity(10 * math.log(27), 10), 6)
    27.0
    """
    mean = per_element(nats, elements)
    return math.exp(mean) if mean < 709 else math.inf


def text_figures(nats: float, counts: Mapping[str, int]) -> dict[str, Any]:
    """Figures of a text, ready for JSON.

    The symbol `<unk>` replaces any text that the vocabulary lacks, so a model with few symbols has
    little to predict: report its share with every figure.

    Args:
        nats: negative log-likelihood of the whole text.
        counts: `elements`, how many of them are `unknown`, and the `characters` and `bytes` they were read from.

    >>> text_figures(8.0, {"elements": 4, "unknown": 1, "characters": 8, "bytes": 16})["unknown_share"]
    0.25
    """
    total = bits(nats)
    return {
        "bits_per_character": total / max(counts["characters"], 1),
        "bits_per_byte": total / max(counts["bytes"], 1),
        "unknown_share": counts["unknown"] / max(counts["elements"], 1),
    }


def describe_figures(figures: Mapping[str, Any], *, of_characters: bool = False) -> str:
    """`text_figures` in words, the bits of a character left out of a line `of_characters`, which has said them.

    >>> describe_figures({"bits_per_character": 2.0, "bits_per_byte": 1.9, "unknown_share": 0.25})
    '2.0000 bits per character, 1.9000 per byte of the text, 25.0% of the symbols <unk>'
    >>> describe_figures({"bits_per_character": 2.0, "bits_per_byte": 1.9, "unknown_share": 0.0}, of_characters=True)
    '1.9000 bits per byte of the text'
    """
    share = figures["unknown_share"]
    unknown = f", {share:.1%} of the symbols <unk>" if share else ""
    characters = "" if of_characters else f"{figures['bits_per_character']:.4f} bits per character, "
    return f"{characters}{figures['bits_per_byte']:.4f} {'bits ' * of_characters}per byte of the text{unknown}"
