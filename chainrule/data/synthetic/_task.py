"""Base of the tasks of memory: a batch, and the facts against which a network is measured."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class SyntheticBatch(NamedTuple):
    """Rows of one length, with the answers and where they are asked for.

    Attributes:
        inputs: (B, T) integers in [0, N), or (B, T, N) features.
        targets: (B, T), what is to be said after reading the element of that step; it counts where `mask` is true.
        mask: (B, T) booleans, true at the steps that are scored.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class SyntheticTask(ABC):
    """A task whose answer comes a known number of steps before the question.

    `chance` and `chance_accuracy` belong to the best predictor without memory: it knows the present element x_t, the
    number t of the step and how the task is drawn, but nothing of x_<t. `optimum` is the loss of the best predictor
    that has read all of x_1 ... x_t; its accuracy is 1 in every task here.

    Attributes:
        length: T, elements of a row.
        distance: steps from reading what the answer depends on to giving the answer.
        input_size: N, features of an element, or the number of input symbols: the input size of a recurrent layer.
        output_size: values that a network gives at each step: the symbols among which it chooses, or 1.
        chance: the least loss that can be had without memory: nats for symbols, else squared error.
        chance_accuracy: the largest share of right answers that can be had without memory.
        optimum: the loss of the perfect predictor, in the unit of `chance`.
    """

    length: int
    distance: int
    input_size: int
    output_size: int
    chance: float
    chance_accuracy: float
    optimum: float = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.length}, distance={self.distance})"

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n independent rows, on the generator's device; the same seed gives the same rows."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean loss of the scored steps, to be compared with `chance` and `optimum`.

        Args:
            outputs: (B, T, output_size), what a network says after reading each element.
            batch: the rows it read.
        """

    @abstractmethod
    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of right answers among the scored steps, to be compared with `chance_accuracy` and 1."""


class SymbolTask(SyntheticTask):
    """A task that is answered with a symbol; the outputs of a network are logits (B, T, V)."""

    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean cross-entropy of the scored steps, nats."""
        return F.cross_entropy(outputs[batch.mask], batch.targets[batch.mask])

    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of scored steps at which the right symbol is the most probable one."""
        right = outputs[batch.mask].argmax(-1) == batch.targets[batch.mask]
        return right.float().mean().item()


def check_count(name: str, value: int, least: int, reason: str = "") -> None:
    """`ValueError` unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: expected a whole number >= {least}{reason and ': ' + reason}, got {value!r}")
