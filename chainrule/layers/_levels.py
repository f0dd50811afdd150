"""Levels of a quantised signal: their embedding as numbers, and the head that predicts one."""

from typing import final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads._discretized_logistic_mixture import bin_centres
from chainrule.layers._linear import Linear


@final
class LevelEmbedding(nn.Module):
    r"""Linear embedding of levels in [0, V): :math:`w \tilde x + b`; a vector of its own for V, the start symbol."""

    def __init__(self, levels: int, size: int):
        super().__init__()
        self.levels = levels
        self.weight = nn.Parameter(torch.empty(3, size))  # w, b, and the vector of the start symbol

    def reset_parameters(self) -> None:
        """Draw the vectors."""
        nn.init.normal_(self.weight)

    def forward(self, symbols: Tensor) -> Tensor:
        """Integers (..) to (.., N)."""
        weight, bias, start = self.weight.unbind()
        values = (level_centres(symbols, self.levels, weight.dtype) * weight + bias).to(weight.dtype)
        return torch.where((symbols == self.levels).unsqueeze(-1), start, values)


@final
class LevelHead(nn.Module):
    r"""Features to the distribution of a level: :math:`s = W_2\,\mathrm{relu}(W_1\,\mathrm{relu}(S g))`.

    s are V scores; with K `components` they are logits, offsets and log-scales of a mixture of logistics, whose means
    are counted from the middle of the level before, or from 0.
    """

    def __init__(self, size: int, hidden_size: int, levels: int, components: int | None = None):
        super().__init__()
        self.levels, self.components = levels, components
        self.skip, self.hidden = Linear(size, hidden_size), Linear(hidden_size, hidden_size)
        self.output = Linear(hidden_size, 3 * components if components else levels)

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers, with a ReLU between."""
        return [self.skip, self.hidden, self.output]

    def reset_parameters(self) -> None:
        """Draw weights that keep the variance of their input; a mixture begins spread over the levels."""
        for linear in self.linears:
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        if self.components is not None:
            self.output.weight.data.mul_(0.1)
            _, offsets, log_scales = self.output.bias.data.chunk(3)
            several = self.components > 1
            offsets.copy_(torch.linspace(-0.1, 0.1, self.components) if several else torch.zeros(1))
            log_scales.copy_(torch.linspace(-5.0, -1.0, self.components) if several else -torch.ones(1) * 3)

    def hidden_units(self, features: Tensor) -> Tensor:
        """Units of the last hidden layer."""
        units: Tensor = self.hidden(self.skip(features).relu()).relu()
        return units

    def forward(self, features: Tensor, before: Tensor) -> Distribution:
        """The distribution after the levels (..), from features (.., N)."""
        return self.distribution(self.output(self.hidden_units(features)), before)

    def distribution(self, scores: Tensor, before: Tensor) -> Distribution:
        """The distribution with the scores s after the levels (..)."""
        if self.components is None:
            return Categorical(scores)
        logits, offsets, log_scales = scores.chunk(3, -1)
        centres = level_centres(before, self.levels, self.output.weight.dtype)
        centres = centres.masked_fill((before == self.levels).unsqueeze(-1), 0)
        return DiscretizedLogisticMixture(logits, centres + offsets, log_scales, self.levels)


def level_centres(symbols: Tensor, levels: int, dtype: torch.dtype) -> Tensor:
    """(..) to (.., 1), never in half precision, in which neighbouring levels would be one."""
    return bin_centres(symbols.to(torch.promote_types(dtype, torch.float32)), levels).unsqueeze(-1)
