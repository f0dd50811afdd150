from dataclasses import replace

import pytest
import torch
from latent_models import Coins, LinearGaussian, Whole

from chainrule.heads import Bernoulli, DiagonalNormal
from chainrule.models import VAE
from chainrule.testing import _contract, check_exact, check_model
from chainrule.testing._contract import CHECKS
from chainrule.testing._invariance import check_batch_independence


def check_of(rule):
    return next(check for check in CHECKS if check.__name__ == f"check_{rule}")


def keeps(rule, model, x):
    return check_of(rule)(model, x).ok


def coins(kind=Coins):
    return kind(), torch.randint(2, (3, 4))


class NegativeKL(Coins):
    def draw(self, *arguments, **given):
        drawn = super().draw(*arguments, **given)
        return replace(drawn, log_ratio=-drawn.log_ratio, kl_terms=-drawn.kl_terms)


class MeanOfTheKL(Coins):
    def kl(self, *arguments, **given):
        return self.kl_terms(*arguments, **given).mean(-1)


class VarianceForDeviation(Coins):
    def draw(self, x, *arguments, **given):
        posterior = self.encode(x)
        wrong = DiagonalNormal(posterior.mean, posterior.log_scale / 2)
        return replace(super().draw(x, *arguments, **given), kl_terms=wrong.kl_terms())


class DrawsByTheVariance(DiagonalNormal):
    def rsample(self, sample_shape=(), *, generator=None):
        return DiagonalNormal(self.mean, 2 * self.log_scale).rsample(sample_shape, generator=generator)


class WrongDraws(Coins):
    def encode(self, x, *, lengths=None):
        found = super().encode(x)
        return DrawsByTheVariance(found.mean, found.log_scale - 0.5)


class MeanOverCoins(Whole):
    def log_prob(self, value):
        return self.parts.log_prob(value).mean(-1)


class MeanForSum(Coins):
    def decode(self, z):
        return MeanOverCoins(Bernoulli(self.decoder(z)))


class ScoresForProbabilities(Whole):
    def log_prob(self, value):
        return (self.parts.logits * value).sum(-1)


class NotNormalised(Coins):
    def decode(self, z):
        return ScoresForProbabilities(Bernoulli(self.decoder(z)))


class OtherSamples(Whole):
    def sample(self, sample_shape=(), *, generator=None):
        return Whole(Bernoulli(2 * self.parts.logits + 1)).sample(sample_shape, generator=generator)


class SamplesThatDoNotFollow(Coins):
    def decode(self, z):
        return OtherSamples(Bernoulli(self.decoder(z)))


class RowsThatMix(Coins):
    def encode(self, x, *, lengths=None):
        found = super().encode(x)
        return DiagonalNormal(found.mean - found.mean.mean(0), found.log_scale)


class SumOfWeights(Coins):
    def importance_bound(self, x, samples=1, generator=None, **given):
        return super().importance_bound(x, samples, generator, **given) + torch.tensor(samples).log()


class WiderPrior(Coins):
    def prior_sample(self, n, generator=None):
        return 2 * super().prior_sample(n, generator)


class GlobalDraws(Coins):
    def sample(self, n, generator=None):
        return super().sample(n)


class Forgetful(Coins):
    def __init__(self):
        super().__init__()
        self.shift = torch.randn(2)

    def encode(self, x, *, lengths=None):
        found = super().encode(x)
        return DiagonalNormal(found.mean + self.shift, found.log_scale)


class UnusedWeight(Coins):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(3))


class InfiniteOnceMoved(Coins):
    def __init__(self):
        super().__init__()
        self.began = self.encoder.bias.detach().clone()

    def training_objective(self, x, context=None, lengths=None):
        bias = self.encoder.bias
        steep = (bias - bias.detach()).abs().sqrt().sum()  # 0, but its derivative is infinite
        moved = not torch.equal(bias.detach().float(), self.began)
        return super().training_objective(x, context, lengths) + moved * steep


class AllZero(Coins):
    def __init__(self):
        super().__init__()
        for weight in self.parameters():
            torch.nn.init.zeros_(weight)


class RowsThatMixALittle(VAE):
    def encode(self, x, *, lengths=None):
        found = super().encode(x)
        return DiagonalNormal(found.mean + 1e-6 * found.mean.mean(0), found.log_scale)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (NegativeKL, "kl_divergence"),
        (MeanOfTheKL, "kl_divergence"),
        (VarianceForDeviation, "kl_divergence"),
        (WrongDraws, "posterior"),
        (MeanForSum, "decoder"),
        (NotNormalised, "decoder"),
        (SamplesThatDoNotFollow, "decoder"),
        (GlobalDraws, "reproducible"),
        (RowsThatMix, "batch_independence"),
        (SumOfWeights, "bounds"),
        (WiderPrior, "posterior"),
        (Forgetful, "save_load"),
        (UnusedWeight, "gradients_reach_parameters"),
        (InfiniteOnceMoved, "gradients_reach_parameters"),
        (AllZero, "gradients_reach_parameters"),
    ],
)
def test_a_broken_model_is_found_out(kind, rule, monkeypatch):
    assert not keeps(rule, *coins(kind))
    monkeypatch.setattr(_contract, "CHECKS", (check_of(rule),))
    assert not check_model(*coins(kind), thorough=False).ok  # with fewer draws


def test_a_large_likelihood_does_not_hide_a_slight_mixing_of_rows():
    model = RowsThatMixALittle((1, 8, 8), levels=256, latent_size=2, hidden_size=8)
    assert not check_batch_independence(model, torch.randint(256, (3, 1, 8, 8))).ok


def test_a_sound_model_passes(keeps_contract):
    keeps_contract(*coins())


def test_the_bound_of_a_linear_gaussian_model_meets_its_likelihood():
    model = LinearGaussian().double()
    x = model.sample(3).double()
    report = check_model(model, x)
    assert report.ok, report
    assert check_exact(model, x, model.exact(x)).ok
    assert not check_exact(model, x, model.exact(x) + 0.05).ok


def test_arguments_that_fit_no_model_are_refused():
    with pytest.raises(ValueError, match="a LatentModel or a LikelihoodModel of labels, got Linear"):
        check_model(torch.nn.Linear(1, 1), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="x: expected a tensor of shape"):
        check_model(Coins(), torch.zeros(4))
