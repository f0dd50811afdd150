"""A mixture of Student's t is torch's in value, draws what it says, and is finite everywhere."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, MixtureSameFamily, StudentT

from chainrule.heads import GaussianMixture, StudentTMixture
from chainrule.heads._special_functions import log_gamma_ratio, student_tail
from chainrule.testing._agreement import integral


def mixture(*shape, components=3, seed=0):
    random = torch.Generator().manual_seed(seed)
    logits, means, log_scales, degrees = torch.randn(4, *shape, components, generator=random, dtype=torch.float64)
    return StudentTMixture(logits, 3 * means, log_scales - 1, 2.5 + degrees.abs())


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_density_and_moments_are_those_of_torch(shape):
    x, value = mixture(*shape), 4 * torch.randn(5, *shape, dtype=torch.float64)
    theirs = MixtureSameFamily(Categorical(logits=x.logits), StudentT(x.degrees, x.means, x.log_scales.exp()))
    torch.testing.assert_close(x.log_prob(value), theirs.log_prob(value), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x.mean, theirs.mean)
    torch.testing.assert_close(x.variance, theirs.variance)


@given(
    st.lists(
        st.tuples(st.floats(-3, 3), st.floats(-20, 20), st.floats(-3, 3), st.floats(1.5, 100)), min_size=1, max_size=4
    )
)
def test_it_integrates_to_one(components):
    x = StudentTMixture(*torch.tensor(components, dtype=torch.float64).unbind(1))
    hints = torch.cat([x.means + z * x.log_scales.exp() for z in range(-8, 9)])
    total, _ = integral(lambda points: x.log_prob(points).exp(), -math.inf, math.inf, hints)
    assert total == pytest.approx(1, abs=1e-4)


def test_draws_follow_the_distribution_function_of_scipy():
    t = pytest.importorskip("scipy.stats").t
    for degrees in (0.7, 2.5, 30.0):
        x = StudentTMixture(*(torch.tensor([part]).double() for part in (0.0, 1.0, math.log(2), degrees)))
        drawn = x.sample((20_000,), generator=torch.Generator().manual_seed(0))
        share = [(drawn <= 1 + 2 * t.ppf(p, degrees)).double().mean().item() for p in (0.01, 0.1, 0.5, 0.9, 0.99)]
        assert share == pytest.approx([0.01, 0.1, 0.5, 0.9, 0.99], abs=0.012)  # 3.4 standard errors at 0.5


@given(
    st.sampled_from([0.3, 1.0, 2.0, 2.01, 3.0, 30.0, 1e4, 1e6]),
    st.floats(-20, 20).map(lambda power: math.copysign(2.0 ** abs(power) - 1, power)),
)
def test_tails_are_those_of_scipy(degrees, z):
    t = pytest.importorskip("scipy.stats").t
    z, degrees = torch.tensor([z, degrees], dtype=torch.float64)
    assert student_tail(z.abs(), degrees).item() == pytest.approx(t.sf(z.abs(), degrees), rel=1e-8)
    x = StudentTMixture(*torch.tensor([[0.0], [1.0], [math.log(2)], [degrees]], dtype=torch.float64))
    assert x.cdf(1 + 2 * z).item() == pytest.approx(t.cdf(z, degrees), rel=1e-8, abs=1e-15)


@given(st.integers(0, 20), st.floats(1e-9, 1 - 1e-9))
def test_quantiles_are_where_the_cdf_reaches_their_probability(seed, probability):
    x, share = mixture(4, seed=seed), torch.tensor(probability, dtype=torch.float64)
    found = x.icdf(share)
    assert found.shape == (4,)
    torch.testing.assert_close(x.cdf(found), share.expand(4), rtol=1e-12, atol=1e-15)


def test_the_cdf_is_the_integral_of_the_density():
    x = mixture(seed=1)
    hints = torch.cat([x.means + z * x.log_scales.exp() for z in range(-8, 9)])
    for end in (-4.0, 0.0, 2.5):
        share, _ = integral(lambda points: x.log_prob(points).exp(), -math.inf, end, hints)
        assert x.cdf(torch.tensor(end).double()).item() == pytest.approx(share, abs=1e-5)


def test_the_ends_of_the_line_are_quantiles_and_other_numbers_no_probabilities():
    x = mixture(2, 3)
    assert x.icdf(torch.tensor([0.0, 0.5, 1.0]))[0].isfinite().tolist() == [False, True, False]
    assert (x.icdf(torch.tensor(0.0)) == -math.inf).all()
    with pytest.raises(ValueError, match="value: expected probabilities"):
        x.icdf(torch.tensor(1.5))


def test_draws_come_from_their_components():
    x = StudentTMixture(
        torch.tensor([0.0, math.log(3)]), torch.tensor([-100.0, 100.0]), torch.zeros(2), torch.full((2,), 9.0)
    )
    drawn = x.sample((8000,), generator=torch.Generator().manual_seed(0))
    assert (drawn > 0).float().mean().item() == pytest.approx(0.75, abs=0.02)


def test_with_many_degrees_of_freedom_it_is_a_gaussian_mixture():
    x, value = mixture(4), torch.randn(4, dtype=torch.float64)
    nearly = StudentTMixture(*x.parameters[:3], torch.full_like(x.degrees, 1e7))
    torch.testing.assert_close(
        nearly.log_prob(value), GaussianMixture(*x.parameters[:3]).log_prob(value), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [1.0, 1e3, 1e30])
def test_value_and_gradient_are_finite_everywhere(size):
    parts = [part.requires_grad_() for part in (torch.randn(50, 3) * scale for scale in (50, size, 50, 50))]
    x = StudentTMixture.from_parameters(torch.cat(parts, -1))
    terms = x.log_prob(torch.randn(50) * size)
    assert terms.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(terms.sum(), parts))


def test_degrees_from_a_network_leave_a_finite_variance():
    x = StudentTMixture.from_parameters(torch.full((4,), -50.0))
    assert x.degrees.item() == pytest.approx(2.0)
    assert StudentTMixture.from_parameters(torch.zeros(8)).variance.isfinite()


def test_moments_that_do_not_exist_are_not_made_up():
    cauchy = StudentTMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.ones(1))
    assert cauchy.mean.isnan()
    heavy = StudentTMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.full((1,), 1.5))
    assert heavy.variance.isinf()


def test_shapes_that_do_not_belong_together_are_named():
    with pytest.raises(ValueError, match=r"^degrees"):
        StudentTMixture(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.ones(3))
    with pytest.raises(ValueError, match=r"^outputs"):
        StudentTMixture.from_parameters(torch.zeros(6))


@pytest.mark.parametrize("degrees", [0.3, 3.0, 19.9, 20.1, 100.0, 1e4, 1e6, 1e8])
def test_float32_is_as_exact_with_many_degrees_of_freedom_as_with_few(degrees):
    """log Γ((ν+1)/2) - log Γ(ν/2) in float32 was off by 0.02 nats at ν = 1e5 and by 60 at ν = 1e8."""
    t = pytest.importorskip("scipy.stats").t
    value = torch.tensor([0.0, 0.5, 3.0, 30.0])
    x = StudentTMixture(*(torch.full((4, 1), part) for part in (0.0, 0.0, 0.0, degrees)))
    expected = torch.from_numpy(t.logpdf(value.double().numpy(), degrees))
    torch.testing.assert_close(x.log_prob(value).double(), expected, rtol=2e-6, atol=2e-6)


def test_the_ratio_of_gamma_functions_and_its_slope_are_smooth_where_the_series_begins():
    x = torch.tensor([10 - 1e-9, 10.0], dtype=torch.float64, requires_grad=True)
    ratio = log_gamma_ratio(x)
    (slope,) = torch.autograd.grad(ratio.sum(), x)
    for pair in (ratio, slope):
        assert pair[0].item() == pytest.approx(pair[1].item(), rel=1e-9)


def test_few_degrees_and_a_tiny_scale_leave_value_and_gradient_finite():
    degrees = torch.tensor([0.1, 3.0], requires_grad=True)
    log_prob = StudentTMixture(torch.zeros(2), torch.zeros(2), torch.tensor([-1000.0, 0.0]), degrees)
    log_prob = log_prob.component_log_prob(torch.tensor(7.0))
    assert log_prob.isfinite().all()
    log_prob.sum().backward()
    assert degrees.grad.isfinite().all()


def test_a_component_without_weight_has_no_part_in_the_moments():
    mixture = StudentTMixture(torch.tensor([0.0, -200.0]), torch.ones(2), torch.zeros(2), torch.tensor([3.0, 0.5]))
    assert (mixture.mean.item(), mixture.variance.item()) == (1, 3)
