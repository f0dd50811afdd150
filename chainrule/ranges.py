"""Ranges of constructor arguments, written in their annotations for people and the command line."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The least and the greatest value that an argument may have."""

    low: float
    high: float


Size = Annotated[int, Range(1, 1 << 16)]
"""A number of units, features or symbols."""
Layers = Annotated[int, Range(1, 256)]
"""A number of layers, heads or repetitions."""
Probability = Annotated[float, Range(0.0, 0.99)]
"""Probability of leaving something out in training."""
