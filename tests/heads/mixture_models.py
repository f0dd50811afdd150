"""Small models with mixture heads, written as a user would write them."""

import torch
from torch import nn

from chainrule._base import AutoregressiveModel
from chainrule.heads import DiscretizedLogisticMixture, GaussianMixture, PixelLogisticMixture


class TinyLevels(AutoregressiveModel):
    """A recurrent model of levels, as of sound."""

    levels = 6

    def __init__(self, components: int = 3):
        super().__init__()
        self.cell = nn.GRUCell(1, 6)
        self.start = nn.Parameter(torch.randn(6))
        self.output = nn.Linear(6, DiscretizedLogisticMixture.num_parameters(components))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7)

    def conditional(self, h):
        return DiscretizedLogisticMixture.from_parameters(self.output(h), self.levels)

    def read(self, x):
        return (x.unsqueeze(-1) / 2 - 1).to(self.start.dtype)

    def initial_state(self, batch_size, context=None):
        return self.start.expand(batch_size, -1)

    def step(self, x_prev, state):
        state = state if x_prev is None else self.cell(self.read(x_prev), state)
        return self.conditional(state), state

    def forward(self, x, context=None, lengths=None):
        states = [self.initial_state(len(x))]
        for t in range(x.shape[1] - 1):
            states.append(self.cell(self.read(x[:, t]), states[-1]))
        return self.conditional(torch.stack(states, 1))


class TinyReals(TinyLevels):
    """The same of real numbers."""

    def conditional(self, h):
        return GaussianMixture.from_parameters(self.output(h))

    def read(self, x):
        return x.unsqueeze(-1)


class TinyPixels(AutoregressiveModel):
    """Pixels of three channels, T = 3P: a network gives one joint distribution a pixel, the head one channel at a time.

    The state is the network's, and the channels of the present pixel that are known.
    """

    levels, channels = 4, 3
    conditional_of = staticmethod(lambda pixel, earlier: pixel.conditional(earlier))

    def __init__(self, components: int = 2):
        super().__init__()
        self.cell = nn.GRUCell(self.channels, 6)
        self.start = nn.Parameter(torch.randn(6))
        self.output = nn.Linear(6, PixelLogisticMixture.num_parameters(self.channels, components))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7)

    def pixel(self, h):
        return PixelLogisticMixture.from_parameters(self.output(h), self.channels, self.levels)

    def read(self, pixel):
        return pixel.to(self.start.dtype) / 2 - 0.75

    def initial_state(self, batch_size, context=None):
        known = torch.empty(batch_size, 0, dtype=torch.long, device=self.start.device)
        return self.start.expand(batch_size, -1), known

    def step(self, x_prev, state):
        h, known = state
        if x_prev is not None:
            known = torch.cat([known, x_prev.unsqueeze(1)], 1)
        if known.shape[1] == self.channels:
            h, known = self.cell(self.read(known), h), known[:, :0]
        return self.conditional_of(self.pixel(h), known), (h, known)

    def forward(self, x, context=None, lengths=None):
        missing = -x.shape[1] % self.channels
        pixels = nn.functional.pad(x, (0, missing)).unflatten(1, (-1, self.channels))  # (B, P, 3)
        states = [self.initial_state(len(x))[0]]
        for t in range(pixels.shape[1] - 1):
            states.append(self.cell(self.read(pixels[:, t]), states[-1]))
        channels = self.pixel(torch.stack(states, 1)).conditionals(pixels)
        return channels.with_parameters(*(part.flatten(1, 2)[:, : x.shape[1]] for part in channels.parameters))
