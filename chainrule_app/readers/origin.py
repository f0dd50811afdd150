"""Where data come from: the name of a file and the lines in it, or an argument and the indices of its items."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Origin:
    """Name of a source for errors, and the word that numbers its items.

    >>> print(Origin("rows.csv").at(7), Origin("data", "index").at(5), Origin("data", "index"), sep="; ")
    rows.csv line 7; data index 5; data
    """

    name: str  # of the file, with its folders, or of the argument
    unit: str = "line"

    def __str__(self) -> str:
        return self.name

    def at(self, number: int) -> str:
        """Name one item."""
        return f"{self.name} {self.unit} {number}"


class InMemory(ABC):
    """Data in memory, which a reader takes in place of the path of a file."""

    origin: Origin

    def __str__(self) -> str:
        return str(self.origin)

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""


def is_path(source: Any) -> bool:
    """Return whether a source of a run is the path of a file, neither absent nor data in memory."""
    return source is not None and not isinstance(source, InMemory)


def origin_of(source: Any) -> Origin:
    """Return the origin of data in memory, or of the file that a path names."""
    return source.origin if isinstance(source, InMemory) else Origin(str(source))
