"""Random choices of the checks, fixed by a seed."""

import torch
from torch import Tensor


class Choices:
    """A source of random numbers of its own, on the CPU, whose tensors come on the device of the model.

    Attributes:
        random: the source.
        device: of the tensors.
    """

    def __init__(self, seed: int, device: torch.device):
        self.random, self.device = torch.Generator().manual_seed(seed), device

    def integers(self, high: int, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randint(high, tuple(shape), generator=self.random).to(self.device)

    def uniform(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.rand(tuple(shape), generator=self.random, dtype=torch.float64).to(self.device)

    def normal(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(tuple(shape), generator=self.random, dtype=torch.float64).to(self.device)

    def generator(self, seed: int) -> torch.Generator:
        """A generator for a sampler, on the device of the model."""
        return torch.Generator(self.device).manual_seed(seed)
