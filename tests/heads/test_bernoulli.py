"""Bernoulli is torch's, exact at any logit, drawn from an explicit generator and cut as a die of two sides."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.heads import Bernoulli, Categorical
from chainrule.heads._adapter import head_of

LOGITS = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TORCH = torch.distributions.Bernoulli


@pytest.mark.parametrize("name", ["logits", "probs", "mode", "mean", "variance", "param_shape", "batch_shape"])
def test_its_attributes_are_those_of_torch(name):
    ours, theirs = (getattr(kind(logits=LOGITS), name) for kind in (Bernoulli, TORCH))
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    else:
        assert ours == theirs


def test_log_prob_and_entropy_and_their_gradients_are_those_of_torch():
    value = torch.randint(2, (2, 3)).double()
    for method in (lambda kind: kind.log_prob(value), lambda kind: kind.entropy()):
        results = []
        for kind in (Bernoulli, TORCH):
            logits = LOGITS.clone().requires_grad_()
            result = method(kind(logits=logits))
            (gradient,) = torch.autograd.grad((result * torch.arange(6.0).view(2, 3)).sum(), logits)
            results.append((result, gradient))
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@given(st.floats(-1e30, 1e30))
def test_probabilities_sum_to_one_and_no_likelihood_is_lost(logit):
    coin = Bernoulli(torch.tensor(logit, dtype=torch.float64))
    terms = coin.log_prob(torch.tensor([0.0, 1.0]))
    assert float(terms.exp().sum()) == pytest.approx(1, abs=1e-12)
    assert float(terms.min()) == pytest.approx(-max(abs(logit), 0.6931471805599453), rel=0.7)
    assert terms.isfinite().all()


def test_float32_keeps_what_a_probability_would_round_away():
    terms = Bernoulli(torch.tensor([40.0, -40.0])).log_prob(torch.tensor([0, 1]))
    assert torch.equal(terms, torch.tensor([-40.0, -40.0]))


def test_certain_outcomes_have_probability_one_and_the_others_zero():
    coin = Bernoulli(torch.tensor([torch.inf, -torch.inf]))
    assert coin.log_prob(torch.tensor([1, 0])).tolist() == [0, 0]
    assert coin.log_prob(torch.tensor([0, 1])).tolist() == [-torch.inf, -torch.inf]
    assert coin.entropy().tolist() == [0, 0]
    assert all(coin.sample().tolist() == [1, 0] for _ in range(200))


def test_draws_have_the_frequencies_of_log_prob():
    drawn = Bernoulli(LOGITS).sample((20_000,), generator=torch.Generator().manual_seed(0))
    deviations = (drawn.mean(0) - LOGITS.sigmoid()) / (LOGITS.sigmoid() * LOGITS.neg().sigmoid() / 20_000).sqrt()
    assert deviations.abs().max() < 4.5  # standard errors, 6 of them


@given(
    st.lists(st.integers(-300, 300), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([None, 0.3, 0.6, 0.9, 1.0]),
)
def test_it_is_cut_as_a_categorical_of_two_symbols(scores, temperature, top_k, top_p):
    logits = torch.tensor(scores).double() / 64
    die = Categorical(torch.stack([torch.zeros_like(logits), logits], -1)).filtered(temperature, top_k, top_p)
    coin = Bernoulli(logits).filtered(temperature, top_k, top_p)
    torch.testing.assert_close(coin.probs, die.probs[..., 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("arguments", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}])
def test_filters_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Bernoulli(LOGITS).filtered(**arguments)


@pytest.mark.parametrize("kind", [Bernoulli, TORCH])
def test_draws_are_filtered_and_come_from_the_generator(kind):
    coin = head_of(kind(logits=torch.tensor([0.2, -0.2]).repeat(100)))
    assert coin.filtered(temperature=0.0).sample().tolist() == [1.0, 0.0] * 100
    assert coin.filtered(top_k=1).sample().tolist() == [1.0, 0.0] * 100
    assert coin.filtered(top_p=0.4).sample().tolist() == [1.0, 0.0] * 100
    assert 0 < float(coin.sample(generator=torch.Generator().manual_seed(0))[::2].mean()) < 1


def test_only_zero_and_one_have_a_probability():
    logits = torch.tensor([0.3], requires_grad=True)
    for value in (0.5, 3.0, -1.0, math.nan):
        log_prob = Bernoulli(logits).log_prob(torch.tensor([value]))
        assert log_prob.tolist() == [-math.inf]
        assert torch.autograd.grad(log_prob.sum(), logits)[0].tolist() == [0.0]


@pytest.mark.parametrize("temperature", [1e-39, 1e-300])
def test_a_temperature_next_to_zero_is_greedy(temperature):
    assert Bernoulli(torch.tensor([2.0, -1e-3, 0.0])).filtered(temperature).probs.tolist() == [1.0, 0.0, 0.5]
