"""Protocols of the data that a model is trained on and measured with."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from torch import Tensor

from chainrule._base import Context


class Batch(Protocol):
    """Protocol of a batch: any object with these attributes.

    `chainrule.data.Batch` builds one from tensors, and the functions of `chainrule.data` build them from files.
    """

    @property
    def x(self) -> Tensor:
        """Elements (B, T), or `whole` rows (B, ...)."""

    @property
    def lengths(self) -> Tensor | None:
        """Lengths (B,) if every row is a whole sequence; None for chunks of endless rows."""

    @property
    def previous(self) -> Tensor | None:
        """Element (B,) before x[:, 0]; None at the start of the rows, where no state is carried over."""

    @property
    def context(self) -> Context:
        """Context of each row; rows with a context are whole sequences."""

    @property
    def whole(self) -> bool:
        """True if the rows are whole sequences without lengths: images (B, C, H, W), labels (B,)."""


class TrainingBatches(Protocol):
    """Protocol of training data: a pure function of the step, so that resuming needs only the step's number."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in a pass over the data."""

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""


ValidationBatches: TypeAlias = Callable[[], Iterable[Batch]]


def count_elements(batch: Batch) -> int:
    """Count the elements that a model predicts in a batch; NaN is a missing one."""
    if batch.lengths is not None:
        return int(batch.lengths.sum())
    if not batch.whole:
        return batch.x.shape[0] * batch.x.shape[1]
    return int((~batch.x.isnan()).sum()) if batch.x.is_floating_point() else batch.x.numel()
