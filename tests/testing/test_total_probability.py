"""Probabilities that do not add up to 1 are found."""

import math

import pytest
import torch
from sound_models import Tiny, TinyBits, TinyNormal, TinyPoisson
from torch.distributions import Independent, Normal, Poisson

from chainrule.heads import Categorical
from chainrule.testing import check_model
from chainrule.testing._probability import check_total_probability


class Short(Categorical):
    """Sums to 0.99."""

    def log_prob(self, value):
        return super().log_prob(value) + math.log(0.99)


class LacksConstant(Normal):
    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log()


class Off(Poisson):
    def log_prob(self, value):
        return super().log_prob(value) + 0.01


def with_distribution(base, distribution):
    class Broken(base):
        def conditional(self, h):
            return distribution(self.output(h))

    return Broken()


def normal(wrong):
    return lambda h: wrong(h[..., 0], h[..., 1].exp())


def poisson(h):
    return Off(h.squeeze(-1).exp())


def bits(h):
    class ShortBits(Independent):
        def log_prob(self, value):
            return super().log_prob(value) - 0.01

    return ShortBits(torch.distributions.Bernoulli(logits=h), 1)


X = torch.randint(5, (3, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("distribution", [Short])
def test_a_distribution_over_symbols_that_is_none_is_named(distribution):
    result = check_total_probability(with_distribution(Tiny, distribution), X)
    assert not result.ok
    assert "sum to" in result.detail


def test_a_distribution_that_sums_to_less_breaks_this_rule_alone():
    failed = {result.name for result in check_model(with_distribution(Tiny, Short), X).failures}
    assert failed == {"total_probability"}


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (with_distribution(TinyNormal, normal(LacksConstant)), torch.randn(2, 5)),
        (with_distribution(TinyPoisson, poisson), torch.randint(4, (2, 5)).float()),
        (with_distribution(TinyBits, bits), torch.randint(2, (2, 5, 3)).float()),
    ],
)
def test_other_distributions_that_are_none_are_named(model, x):
    assert not check_total_probability(model, x).ok


class OverTime(Tiny):
    def log_prob(self, x, context=None, lengths=None):
        scores = self.output(self.features(x)).log_softmax(1)
        return scores.gather(2, x.unsqueeze(2)).flatten(1).sum(1)


class SkipsFirst(Tiny):
    """The first element goes uncounted."""

    def log_prob(self, x, context=None, lengths=None):
        return self.forward(x).log_prob(x)[:, 1:].sum(1)


@pytest.mark.parametrize("broken", [OverTime, SkipsFirst])
def test_a_log_prob_that_is_not_the_sum_of_the_conditionals_is_named(broken):
    assert not check_total_probability(broken(), X).ok


def test_a_wide_support_is_summed_too():
    class Wide(Tiny):
        def head(self):
            self.output = torch.nn.Linear(8, 700)
            self.embedding = torch.nn.Embedding(700, self.inputs)

        def conditional(self, h):
            return Short(self.output(h))

    assert not check_total_probability(Wide(), torch.randint(700, (2, 5))).ok
