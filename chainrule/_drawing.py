"""Draws of an element from its conditional, and of the following elements in compiled loops."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.heads._adapter import head_of
from chainrule.heads._categorical import Categorical

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Scores


@dataclass(frozen=True)
class Draw:
    """Function that draws an element from its conditional; see `AutoregressiveModel.sample`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: torch.Generator | None

    def __call__(self, conditional: Distribution) -> Tensor:
        filtered = head_of(conditional).filtered(self.temperature, self.top_k, self.top_p)
        return filtered.sample(generator=self.generator)


def compiled_draws(scores: "Scores", symbol: int, pick: Draw) -> Iterator[Tensor]:
    """Yield the symbols of one sequence after `symbol`, without end, with the noise of `Categorical`."""
    from chainrule.kernels._compiled_loops import draw

    noise: Tensor | None = None
    while True:
        row = scores(symbol)
        symbol = -1
        if pick.top_k is None and pick.top_p is None:
            if noise is None:
                noise = torch.from_numpy(np.empty_like(row))
                numbers, least = noise.numpy(), torch.finfo(noise.dtype).tiny
            noise.exponential_(generator=pick.generator).clamp_min_(least).log_()
            symbol = draw(row, numbers, pick.temperature)
        if symbol < 0:
            symbol = int(pick(Categorical(torch.from_numpy(row))))
        yield torch.tensor([symbol], device="cpu")
