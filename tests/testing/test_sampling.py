"""A sampler that draws from anything else than the model is found."""

import pytest
import torch
from sound_models import Tiny, TinyBernoulli, TinyBits, TinyLogNormal, TinyNormal, TinyVectors
from torch.distributions import Normal

from chainrule.testing import _contract, check_model
from chainrule.testing._agreement import surprise
from chainrule.testing._draws import check_samples_follow_log_prob


def sampling(base, change, **asked):
    """`base` with a `sample` that changes what the right one draws."""

    class Broken(base):
        def sample(self, n, context=None, *, length, **options):
            return change(super().sample(n, context, length=length, **(options | asked)), options)

    return Broken


def favour(x, options):
    chosen = torch.rand(x.shape, generator=options["generator"]) < 0.06
    start = 0 if options.get("prefix") is None else options["prefix"].shape[-1]
    chosen[:, :start] = False
    return x.masked_fill(chosen, 2)


def reverse(x, options):
    return x if options.get("prefix") is not None else x.flip(1)


def swap_two(x, options):
    return x if options.get("prefix") is not None else x[:, [1, 0, *range(2, x.shape[1])]]


class IgnoresPrefix(Tiny):
    """Puts the prefix in front of draws that never read it."""

    def sample(self, n, context=None, *, length, prefix=None, **options):
        x = super().sample(n, context, length=length, **options)
        if prefix is not None:
            x[:, : prefix.shape[-1]] = prefix
        return x


class OnePrefixForAll(Tiny):
    """Reads the first row's prefix in place of each row's own."""

    def unroll(self, x, state, x_prev=None):
        return super().unroll(x[:1].expand_as(x) if len(x) > 8 else x, state, x_prev)


class IgnoresContext(Tiny):
    def __init__(self):
        super().__init__(context_size=3)

    def sample(self, n, context=None, **options):
        return super().sample(n, context * 0, **options)


class OnlyStream(Tiny):
    """Right in `sample`, colder in `stream`."""

    inside = False

    def sample(self, n, context=None, *, length, prefix=None, temperature=1.0, generator=None, **options):
        return super().sample(
            n, context, length=length, prefix=prefix, temperature=2 * temperature, generator=generator, **options
        )

    def stream(self, n, context=None, *, temperature=1.0, **options):
        return super().stream(n, context, temperature=temperature / 2, **options)


class GoesOnAfterEnd(Tiny):
    def sample(self, n, context=None, *, eos=None, **options):
        return super().sample(n, context, **options)


DISCRETE = [
    sampling(Tiny, favour),
    sampling(Tiny, reverse),
    sampling(Tiny, swap_two),
    sampling(Tiny, lambda x, options: x, temperature=0.8),
    sampling(Tiny, lambda x, options: x, temperature=1.0),
    sampling(Tiny, lambda x, options: x, top_k=4),
    sampling(Tiny, lambda x, options: x, top_k=None),
    sampling(Tiny, lambda x, options: x, top_p=0.9),
    sampling(Tiny, lambda x, options: x, top_p=None),
    IgnoresPrefix,
    OnePrefixForAll,
    OnlyStream,
    GoesOnAfterEnd,
]


@pytest.mark.parametrize("broken", DISCRETE)
def test_a_wrong_sampler_of_symbols_is_named(broken):
    result = check_samples_follow_log_prob(broken(), torch.randint(5, (3, 8)))
    assert not result.ok
    assert "raised" not in result.detail


def test_a_sampler_without_the_context_is_named():
    assert not check_samples_follow_log_prob(IgnoresContext(), torch.randint(5, (3, 8)), torch.randn(3, 3)).ok


def test_favouring_a_value_breaks_this_rule_alone():
    failed = {result.name for result in check_model(sampling(Tiny, favour)(), torch.randint(5, (3, 8))).failures}
    assert failed == {"samples_follow_log_prob"}


class Biased(Normal):
    """Draws from a wider and shifted density than it computes."""

    shift, stretch = 0.0, 1.0

    def sample(self, sample_shape=()):
        return self.loc + self.shift * self.scale + self.stretch * (super().sample(sample_shape) - self.loc)


def head_that(shift, stretch):
    class Broken(TinyNormal):
        def conditional(self, h):
            normal = super().conditional(h)
            biased = Biased(normal.loc, normal.scale)
            biased.shift, biased.stretch = shift, stretch
            return biased

    return Broken


def sometimes_zero(x, options):
    chosen = torch.rand(x.shape, generator=options["generator"]) < 0.002
    return x.masked_fill(chosen, 0.0) if options.get("prefix") is None else x


CONTINUOUS = [
    head_that(0.2, 1.0),
    head_that(0.0, 1.3),
    head_that(0.0, 0.75),
    sampling(TinyNormal, sometimes_zero),
    sampling(TinyNormal, lambda x, options: x + 0.3),
    sampling(TinyNormal, reverse),
    sampling(TinyNormal, lambda x, options: x * torch.nan),
]


@pytest.mark.parametrize("broken", CONTINUOUS)
def test_a_wrong_sampler_of_values_is_named(broken):
    assert not check_samples_follow_log_prob(broken(), torch.randn(3, 6)).ok


@pytest.mark.parametrize("broken", [kind for kind in DISCRETE + CONTINUOUS if kind is not OnePrefixForAll])
def test_fewer_draws_name_a_wrong_sampler_too(broken, monkeypatch):
    monkeypatch.setattr(_contract, "CHECKS", (check_samples_follow_log_prob,))
    x = torch.randn(3, 6) if broken in CONTINUOUS else torch.randint(5, (3, 8))
    assert not check_model(broken(), x, thorough=False).ok


def test_a_head_whose_sampler_is_wrong_breaks_this_rule_alone():
    failed = {result.name for result in check_model(head_that(0.0, 1.3)(), torch.randn(3, 6)).failures}
    assert failed == {"samples_follow_log_prob"}


def test_wrong_samplers_of_other_elements_are_named():
    flipped = sampling(TinyBernoulli, lambda x, options: (x - (torch.rand(x.shape) < 0.1).double()).abs())
    assert not check_samples_follow_log_prob(flipped(), torch.randint(2, (3, 6)).double()).ok
    same = sampling(TinyBits, lambda x, options: x[..., :1].expand_as(x))
    assert not check_samples_follow_log_prob(same(), torch.randint(2, (3, 6, 3)).double()).ok
    larger = sampling(TinyLogNormal, lambda x, options: 1.2 * x)
    assert not check_samples_follow_log_prob(larger(), torch.rand(3, 6) + 0.5).ok
    moved = sampling(TinyVectors, lambda x, options: x + 0.2)
    assert not check_samples_follow_log_prob(moved(), torch.randn(3, 6, 3)).ok


def test_no_seed_accuses_a_sound_sampler():
    x = torch.randint(5, (2, 5))
    model, real = Tiny(), TinyNormal()
    for seed in range(4):
        assert check_samples_follow_log_prob(model, x, seed=seed).ok
        assert check_samples_follow_log_prob(real, x.double(), seed=seed).ok


def test_rare_events_are_no_surprise_and_frequent_ones_are():
    one, rare = torch.ones(1), torch.tensor([1e-6])
    assert surprise(one, rare, rare, 1.0) is None
    assert surprise(100 * one, 10 * one, 10 * one, 1.0) is not None
    assert surprise(14 * one, 10 * one, 10 * one, 1.0) is None
