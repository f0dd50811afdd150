"""Distributions of torch as heads: the one place where a user's own distribution meets this library."""

from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.heads._bernoulli import Bernoulli
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Head, WrappedHead, check_drawable


def head_of(distribution: Distribution) -> Head:
    """The distribution itself where it is a head, else a head with the same probabilities.

    Those that torch was given as probabilities are taken as they are: torch's own `logits` of them are bounded.

    >>> head_of(distributions.Bernoulli(probs=torch.tensor([0.9, 0.2]))).filtered(temperature=0.0).sample()
    tensor([1., 0.])
    """
    if isinstance(distribution, Head):
        return distribution
    given = vars(distribution).get("probs")
    if isinstance(distribution, distributions.Categorical):
        return Categorical(distribution.logits if given is None else _log(given))
    if isinstance(distribution, distributions.Bernoulli):
        return Bernoulli(distribution.logits if given is None else _log(given) - _log(1 - given))
    return TorchHead(distribution)


def _log(probs: Tensor) -> Tensor:
    """log p, −inf where p is 0, with a gradient of 0 there."""
    return probs.where(probs > 0, 1).log().masked_fill(probs <= 0, -torch.inf)


class TorchHead(WrappedHead):
    """Any other distribution of torch, which reads no generator but the global one."""

    def __init__(self, distribution: Distribution):
        super().__init__(distribution, distribution.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.inner.log_prob(value)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = self._drawn(torch.Size(sample_shape), generator)
        check_drawable((0 * drawn.clamp(-1, 1)).sum(), self._name())  # NaN stays NaN
        return drawn

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        if generator is None:
            return self.inner.sample(shape)
        # Lend the global generator a seed of ours, and put its own state back.
        device = generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type != "cpu" else []):
            torch.manual_seed(seed)
            return self.inner.sample(shape)

    def _name(self) -> str:
        return type(self.inner).__name__
