"""The noise that each position of a sample is drawn with, whichever pass it is drawn in."""

import torch
from torch import Tensor

from chainrule.heads import Categorical


class PositionNoise:
    """Noise of `Categorical.sample_at`, drawn from a generator position by position, in the order of `model.sample`.

    Args:
        like: the conditional of one position, (n, V).
        start: the first position.
        generator: source of randomness.
    """

    def __init__(self, like: Categorical, start: int, generator: torch.Generator | None):
        self._like, self._generator = like, generator
        self._first, self._drawn = start, list[Tensor]()

    def between(self, begin: int, end: int) -> Tensor:
        """Noise of the positions from `begin` to before `end`, (n, end - begin, V); earlier ones are forgotten."""
        del self._drawn[: begin - self._first]
        self._first = begin
        while len(self._drawn) < end - begin:
            self._drawn.append(self._like.noise(self._generator))
        return torch.stack(self._drawn[: end - begin], 1)
