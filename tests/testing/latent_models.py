"""Small models with a latent code: one whose likelihood is known, and one of coins whose x can be listed."""

import torch
from torch import nn

from chainrule._latent import LatentModel
from chainrule.heads import Bernoulli, DiagonalNormal
from chainrule.heads._head import Head


class LinearGaussian(LatentModel):
    """x = W z + b + noise of deviation `NOISE`: ln p(x) is that of a normal distribution (probabilistic PCA).

    The columns of W are orthogonal, so that the true posterior is diagonal; the encoder is a little
    off it, and wider.
    """

    NOISE = 1.0

    def __init__(self, latent_size=2, size=4, **objective):
        super().__init__(latent_size, **objective)
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(size, latent_size), gain=1.5))
        self.bias = nn.Parameter(torch.randn(size))
        weight = self.weight.detach()
        posterior = (torch.eye(latent_size) + weight.T @ weight / self.NOISE**2).inverse()
        read = posterior @ weight.T / self.NOISE**2
        self.read = nn.Parameter(read + 0.02 * torch.randn(latent_size, size))
        self.shift = nn.Parameter(-read @ self.bias.detach())
        self.log_scale = nn.Parameter(0.5 * posterior.diagonal().log() + 0.2)

    def encode(self, x, *, lengths=None):
        mean = x @ self.read.T + self.shift
        return DiagonalNormal(mean, self.log_scale.expand_as(mean))

    def decode(self, z):
        mean = z @ self.weight.T + self.bias
        return DiagonalNormal(mean, torch.full_like(mean, self.NOISE).log())

    def from_codes(self, z, *, generator=None):
        return self.decode(z).mean

    def exact(self, x):
        covariance = self.weight @ self.weight.T + self.NOISE**2 * torch.eye(len(self.bias))
        return torch.distributions.MultivariateNormal(self.bias, covariance).log_prob(x)


class Coins(LatentModel):
    """Four coins, independent given the code."""

    def __init__(self, **objective):
        super().__init__(2, **objective)
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)

    def encode(self, x, *, lengths=None):
        return DiagonalNormal(*self.encoder(x.to(self.encoder.weight.dtype)).chunk(2, 1))

    def decode(self, z):
        return Whole(Bernoulli(self.decoder(z)))

    def from_codes(self, z, *, generator=None):
        return self.decode(z).sample(generator=generator)


class Whole(Head):
    """The coins of a row together, as integers."""

    def __init__(self, coins):
        self.coins = coins
        super().__init__(coins.batch_shape[:-1], coins.batch_shape[-1:], validate_args=False)

    @property
    def support(self):
        return None

    def log_prob(self, value):
        return self.coins.log_prob(value).sum(-1)

    def sample(self, sample_shape=(), *, generator=None):
        return self.coins.sample(sample_shape, generator=generator).long()
