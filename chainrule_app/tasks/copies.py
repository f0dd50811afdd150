"""Samples that occur in the training data: what a model has memorised is nothing new."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_MOST = 1 << 14  # samples that are looked up


class Copies(Generic[T]):
    """The samples that occur in the training data, counted after the last one.

    Args:
        unit: noun of a sample, such as "row".
        find: returns those of some samples that occur in the training data; it raises OSError or ValueError where the
            run does not hold these data.

    >>> copies = Copies("row", lambda rows: rows & {"a", "b"})
    >>> for row in "aac":
    ...     copies.add(row)
    >>> copies.figures()
    {'rows': 3, 'in_training_data': 2}
    """

    def __init__(self, unit: str, find: Callable[[set[T]], set[T]]):
        self._unit, self._find = unit, find
        self._drawn: list[T] = []

    def add(self, sample: T) -> None:
        if len(self._drawn) <= _MOST:
            self._drawn.append(sample)

    def figures(self) -> dict[str, Any]:
        """Return the number of samples, and of those in the training data; nothing if these are not at hand."""
        if not 0 < len(self._drawn) <= _MOST:
            return {}
        try:
            found = self._find(set(self._drawn))
        except (OSError, ValueError):
            return {}
        copies = sum(sample in found for sample in self._drawn)
        return {f"{self._unit}s": len(self._drawn), "in_training_data": copies}
