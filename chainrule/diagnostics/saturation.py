"""How much of the nonlinearities is flat, the values of their gates, and dead units."""

import torch
from torch import Tensor

FLAT = 0.1  # a slope under a tenth of the largest there is
BINS = 20
SIGMOIDS = ("input", "forget", "output", "reset", "update")


def saturation(values: Tensor, kind: str) -> float:
    """The share of f(a) at which f is flat: its slope is under a tenth of its largest, as tanh's beyond ±0.949.

    values: (.., M), after f; kind: "tanh" or "sigmoid".

    >>> saturation(torch.tensor([0.0, 0.99, -0.99, 0.5]), "tanh")
    0.5
    """
    slope = 1 - values**2 if kind == "tanh" else 4 * values * (1 - values)
    return float((slope < FLAT).double().mean())


def dead_units(values: Tensor) -> float:
    """The share of ReLU units that are zero at every element: no gradient reaches their weights. values: (P, M)."""
    return float((values == 0).all(0).double().mean())


def histogram(values: Tensor) -> Tensor:
    """How a gate's values spread over [0, 1]: shares in twenty equal bins."""
    counts = torch.histc(values.double().cpu(), BINS, 0, 1)
    return counts / counts.sum()
