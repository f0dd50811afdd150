"""A Gaussian mixture and independent normals are torch's in value, and finite everywhere."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence

from chainrule.heads import DiagonalNormal, GaussianMixture
from chainrule.testing._agreement import integral


def mixture(*shape, components=3, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    logits, means, log_scales = torch.randn(3, *shape, components, generator=random, dtype=dtype)
    return GaussianMixture(logits, 3 * means, log_scales - 1)


def of_torch(x):
    return MixtureSameFamily(Categorical(logits=x.logits), Normal(x.means, x.log_scales.exp()))


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_density_and_moments_and_gradients_are_those_of_torch(shape):
    value = 4 * torch.randn(5, *shape, dtype=torch.float64)
    for method in (lambda d: d.log_prob(value), lambda d: d.cdf(value), lambda d: d.mean, lambda d: d.variance):
        results = []
        for kind in (lambda x: x, of_torch):
            x = mixture(*shape)
            for part in x.parameters:
                part.requires_grad_()
            result = method(kind(x))
            gradients = torch.autograd.grad(result.sum(), x.parameters, allow_unused=True)
            results.append([result, *(g if g is not None else torch.zeros(()) for g in gradients)])
        for ours, theirs in zip(*results, strict=True):
            if ours.dim() == 0 and theirs.shape != ours.shape:
                theirs = theirs.sum()  # torch's mean depends on the scales by nothing: 0, and no gradient
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, check_dtype=False)


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-20, 20), st.floats(-4, 3)), min_size=1, max_size=4))
def test_it_integrates_to_one_and_its_cdf_is_the_integral(components):
    x = GaussianMixture(*torch.tensor(components, dtype=torch.float64).unbind(1))
    hints = torch.cat([x.means + z * x.log_scales.exp() for z in range(-8, 9)])

    def density(points):
        return x.log_prob(points).exp()

    assert integral(density, -math.inf, math.inf, hints)[0] == pytest.approx(1, abs=1e-5)
    middle = float(x.mean)
    assert integral(density, -math.inf, middle, hints)[0] == pytest.approx(float(x.cdf(x.mean)), abs=1e-5)


def test_the_integral_would_notice_weights_that_are_not_normalised(monkeypatch):
    monkeypatch.setattr(GaussianMixture, "log_weights", property(lambda x: x.logits))
    x = mixture()
    total = integral(lambda points: x.log_prob(points).exp(), -math.inf, math.inf, x.means)[0]
    assert abs(total - 1) > 0.1


@given(
    st.lists(st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 2, st.floats(-20, 20, width=32)), min_size=1, max_size=4),
    st.floats(-1e4, 1e4, width=32),
)
def test_value_and_gradient_are_finite_anywhere(components, value):
    parameters = [part.requires_grad_() for part in torch.tensor(components).unbind(1)]
    x = GaussianMixture(*parameters)
    for result in (x.log_prob(torch.tensor(value)), x.cdf(torch.tensor(value))):
        assert result.isfinite()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result, parameters))


@pytest.mark.parametrize("mean", [-1e30, 0.0, 1e20])
@pytest.mark.parametrize("log_scale", [-1e38, -87.5, 88.0, 1e30])
def test_parameters_at_the_ends_of_float32_are_no_trouble(mean, log_scale):
    parameters = [torch.tensor([3e38, -3e38]), torch.full((2,), mean), torch.full((2,), log_scale)]
    for part in parameters:
        part.requires_grad_()
    terms = GaussianMixture(*parameters).log_prob(torch.tensor([-1.0, 0.0, 1e30]))
    assert terms.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(terms.sum(), parameters))


@given(st.integers(0, 20), st.floats(1e-6, 1 - 1e-6))
def test_quantiles_are_where_the_cdf_reaches_their_probability(seed, probability):
    x = mixture(4, seed=seed)
    quantile = x.icdf(torch.tensor(probability, dtype=torch.float64))
    assert quantile.shape == (4,)
    torch.testing.assert_close(x.cdf(quantile), torch.full((4,), probability, dtype=torch.float64), rtol=0, atol=1e-13)


def test_quantiles_of_one_component_are_those_of_a_normal_density():
    x, probabilities = (
        GaussianMixture(*torch.tensor([[2.0], [3.0], [-1.0]]).double()),
        torch.linspace(0, 1, 11).double(),
    )
    expected = Normal(3.0, torch.tensor(-1.0).double().exp()).icdf(probabilities)
    torch.testing.assert_close(x.icdf(probabilities), expected, rtol=1e-12, atol=1e-12)
    assert x.icdf(torch.tensor([0.0, 1.0])).tolist() == [-math.inf, math.inf]


def test_draws_have_the_distribution_of_the_cdf():
    x = mixture(2)
    drawn = x.sample((20_000,), generator=seeded_generator())
    assert drawn.dtype == torch.float64
    ranks = x.cdf(drawn).sort(0).values
    steps = (torch.arange(20_000).double() + 0.5).div(20_000).unsqueeze(1)
    # Kolmogorov-Smirnov: the largest gap times the root of the number exceeds 2.6 once in 350,000 seeds
    assert float((ranks - steps).abs().max()) * 20_000**0.5 < 2.6
    wrong = x.with_parameters(torch.zeros_like(x.logits), x.means, x.log_scales)
    assert float((wrong.cdf(drawn).sort(0).values - steps).abs().amax(0).min()) * 20_000**0.5 > 2.6


def test_outputs_of_a_network_are_logits_then_means_then_log_scales():
    outputs = torch.randn(4, GaussianMixture.num_parameters(5))
    assert torch.equal(torch.cat(GaussianMixture.from_parameters(outputs).parameters, -1), outputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianMixture(torch.zeros(2), torch.zeros(2), torch.zeros(3)), "log_scales: expected the shape of"),
        (lambda: GaussianMixture.from_parameters(torch.zeros(2, 4)), r"outputs: expected shape \(..., 3K\)"),
        (
            lambda: mixture().icdf(torch.tensor([0.5, 1.5])),
            r"value: expected probabilities in \[0, 1\], got 0.5 to 1.5",
        ),
        (lambda: mixture().icdf(torch.tensor(math.nan)), "value: expected probabilities"),
        (
            lambda: DiagonalNormal(torch.zeros(2, 3), torch.zeros(3)),
            "mean, log_scale: expected two tensors of one shape",
        ),
    ],
)
def test_what_makes_no_mixture_or_probability_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_mass_of_an_interval_is_that_of_the_cdf_and_exact_in_both_tails():
    x = mixture(4)
    low, high = torch.tensor([-2.0, -1.0, 0.5, 3.0]).double(), torch.tensor([-1.9, 2.0, 0.75, 3.01]).double()
    torch.testing.assert_close(x.log_mass(low, high).exp(), x.cdf(high) - x.cdf(low))
    everything = torch.full((4,), torch.inf).double()
    torch.testing.assert_close(x.log_mass(-everything, everything), torch.zeros(4).double())
    one = GaussianMixture(*(torch.zeros(1, 1).double() for _ in range(3)))
    upper, lower = (
        one.log_mass(torch.tensor(30.0), torch.tensor(31.0)),
        one.log_mass(torch.tensor(-31.0), torch.tensor(-30.0)),
    )
    assert torch.equal(upper, lower)
    expected = torch.special.log_ndtr(torch.tensor(-30.0).double())  # the mass beyond 31 is e^-30 of that beyond 30
    torch.testing.assert_close(upper, expected[None])
    assert one.log_mass(torch.tensor(1e200), torch.tensor(2e200)) == -torch.inf


def test_quantiles_of_0_and_1_are_infinite_however_small_the_scale():
    x = GaussianMixture(torch.zeros(2), torch.zeros(2), torch.full((2,), -200.0))
    assert x.icdf(torch.tensor([0.0, 1.0])).tolist() == [-math.inf, math.inf]


def test_a_component_far_off_does_not_spoil_quantiles_and_moments():
    """64 halvings of an interval up to 1e25 ended at 542,101 in place of 0."""
    values = torch.tensor([0.3, 0.5, 0.9], dtype=torch.float64)
    far = GaussianMixture(*torch.tensor([[0.0, -80.0], [0.0, 1e25], [0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(far.icdf(values), Normal(0.0, 1.0).icdf(values), rtol=1e-12, atol=1e-12)
    assert far.icdf(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == [-math.inf, math.inf]
    weightless = GaussianMixture(torch.tensor([0.0, -math.inf]), torch.zeros(2), torch.tensor([0.0, 50.0]))
    assert weightless.variance.item() == 1


def normals():
    mean, log_scale = torch.randn(2, 5, 3, dtype=torch.float64)
    return DiagonalNormal(mean, log_scale), Independent(Normal(mean, log_scale.exp()), 1)


def test_density_and_divergences_are_those_of_torch():
    ours, theirs = normals()
    other, other_theirs = normals()
    z = torch.randn(7, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(z), theirs.log_prob(z))
    torch.testing.assert_close(ours.kl(other), kl_divergence(theirs, other_theirs))
    standard = Independent(Normal(torch.zeros(5, 3).double(), 1.0), 1)
    torch.testing.assert_close(ours.kl(), kl_divergence(theirs, standard))
    torch.testing.assert_close(ours.variance, theirs.variance)


def test_divergence_of_nearly_equal_normals_is_not_negative():
    narrow = DiagonalNormal(torch.full((1, 1), 1e-5), torch.full((1, 1), 3e-5))
    assert 0 <= float(narrow.kl()) < 1e-8  # float32 rounds σ² - 1 - ln σ² itself to -6e-8


def test_draws_carry_gradients_and_repeat_with_their_generator():
    mean, log_scale = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    found = DiagonalNormal(mean, log_scale)
    z = found.rsample((4,), generator=torch.Generator().manual_seed(1))
    z.sum().backward()
    torch.testing.assert_close(mean.grad, torch.full((2, 3), 4.0))
    torch.testing.assert_close(log_scale.grad, z.detach().sum(0))
    assert torch.equal(z, found.sample((4,), generator=torch.Generator().manual_seed(1)))
    assert not found.detached().rsample().requires_grad


@pytest.mark.parametrize("log_scale", [-89.0, -1000.0])
def test_the_narrowest_scales_have_densities_and_divergences(log_scale):
    narrow = DiagonalNormal(torch.zeros(1), torch.tensor([log_scale]))
    assert narrow.log_prob(torch.zeros(1)).item() == pytest.approx(-log_scale - 0.5 * math.log(2 * math.pi))
    assert narrow.log_prob(torch.ones(1)).item() == -math.inf
    assert narrow.kl(narrow).item() == 0
