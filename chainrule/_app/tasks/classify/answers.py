"""Labels with their probabilities, as columns of a result."""

from collections.abc import Sequence
from math import exp
from typing import Any

from chainrule._app.results import Column


def label_columns(top: int, labels: int) -> list[Column]:
    """The columns of `label_cells`: the likeliest label and its probability, then the others asked for."""
    named = [Column("label"), Column("probability", 4)]
    for number in range(2, min(top, labels) + 1):
        named += [Column(f"label_{number}"), Column(f"probability_{number}", 4)]
    return [*named, Column("probabilities", shown=False)]


def label_cells(names: Sequence[str], log_probs: Sequence[float], top: int) -> list[Any]:
    """The `top` likeliest labels, each with its probability, and the probabilities of all by name."""
    order = sorted(range(len(names)), key=lambda label: -log_probs[label])
    cells: list[Any] = [part for label in order[:top] for part in (names[label], exp(log_probs[label]))]
    return [*cells, {name: exp(value) for name, value in zip(names, log_probs, strict=True)}]
