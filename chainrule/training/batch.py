"""What training asks of data: anything that looks like this can be trained on."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from torch import Tensor

from chainrule.base import Context


class Batch(Protocol):
    """Some elements of each of B rows. `chainrule.data` makes such batches; so can any object with these attributes."""

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
        """What each row is conditioned on; rows with a context are whole sequences."""

    @property
    def whole(self) -> bool:
        """Whether the rows are whole sequences without lengths: pictures (B, C, H, W), labels (B,)."""


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
