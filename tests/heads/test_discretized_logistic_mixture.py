"""A discretised logistic mixture sums to 1, draws what it says, and is finite everywhere."""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads._logistic_mixtures import log_bin_mass, standard_edges


def mixture(*shape, components=3, levels=256, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    logits, means, log_scales = torch.randn(3, *shape, components, generator=random, dtype=dtype)
    return DiscretizedLogisticMixture(logits, means / 2, log_scales - 2, levels)


def total(distribution):
    return distribution.log_prob(distribution.enumerate_support()).exp().sum(0)


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(
    st.integers(2, 300),
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-1e4, 1e4), st.floats(-20, 20)), min_size=1, max_size=4),
)
def test_it_sums_to_one_over_its_levels(levels, components):
    logits, means, log_scales = torch.tensor(components, dtype=torch.float64).unbind(1)
    assert float(total(DiscretizedLogisticMixture(logits, means, log_scales, levels))) == pytest.approx(1, abs=1e-9)


def test_a_narrow_mixture_on_an_edge_sums_to_one():
    logits, means, log_scales = torch.tensor([[0.0], [0.0], [-19.0]], dtype=torch.float64)
    assert float(total(DiscretizedLogisticMixture(logits, means, log_scales, 10))) == pytest.approx(1, abs=1e-12)


def test_the_sum_misses_a_tail_that_is_not_taken(monkeypatch):
    def without_tails(value, means, log_scales, levels):
        a, b = standard_edges(value, means, log_scales, levels)
        return logsigmoid(b) + logsigmoid(-a) + (-torch.expm1(a - b)).log()

    monkeypatch.setattr("chainrule.heads._logistic_mixtures.log_bin_mass", without_tails)
    assert (total(mixture(5)) < 0.9999).all()


def test_its_probability_is_the_mixture_of_differences_of_cumulative_probabilities():
    x = mixture(4, levels=8)
    value = torch.arange(8).view(8, 1, 1)
    edges = torch.stack([value / 4 - 1, (value + 1) / 4 - 1])
    lower, upper = ((edges - x.means) / x.log_scales.exp()).sigmoid()
    lower, upper = torch.where(value > 0, lower, 0), torch.where(value < 7, upper, 1)
    expected = (x.logits.softmax(-1) * (upper - lower)).sum(-1).log()
    torch.testing.assert_close(x.log_prob(torch.arange(8).view(8, 1)), expected, rtol=0, atol=1e-12)


@given(st.lists(st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 2, st.floats(-20, 20, width=32)), min_size=1, max_size=4))
def test_value_and_gradient_are_finite_anywhere(components):
    parameters = [part.requires_grad_() for part in torch.tensor(components).unbind(1)]
    terms = DiscretizedLogisticMixture(*parameters).log_prob(torch.arange(0, 256, 15).repeat(2)[:18])
    gradients = torch.autograd.grad(terms.sum(), parameters)
    assert terms.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("logits", [[3e38, -3e38], [0.0, -torch.inf]])
@pytest.mark.parametrize("mean", [-1e30, 0.0, 1e20])
@pytest.mark.parametrize("log_scale", [-1e38, -87.5, 88.0, 1e38])
def test_parameters_at_the_ends_of_float32_are_no_trouble(logits, mean, log_scale):
    parameters = [torch.tensor(logits), torch.full((2,), mean), torch.full((2,), log_scale)]
    for part in parameters:
        part.requires_grad_()
    distribution = DiscretizedLogisticMixture(*parameters)
    terms = distribution.log_prob(torch.tensor([0, 127, 128, 255]))
    assert terms.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(terms.sum(), parameters))
    assert 0 <= int(distribution.sample(generator=seeded_generator())) < 256


@pytest.mark.parametrize("value", [-1, 256, 1.5, float("nan"), float("inf")])
def test_what_is_no_level_has_probability_zero(value):
    assert mixture().log_prob(torch.tensor(value)) == -torch.inf


def chi_square(drawn, probs):
    """The statistic over cells with at least 5 expected, and 6 standard deviations above its mean."""
    counts, expected = torch.bincount(drawn, minlength=len(probs)).double(), len(drawn) * probs
    kept = expected >= 5
    terms = torch.cat([(counts - expected)[kept], (counts - expected)[~kept].sum().view(1)]).square()
    sizes = torch.cat([expected[kept], expected[~kept].sum().clamp_min(1).view(1)])
    freedom = int(kept.sum())
    return float((terms / sizes).sum()), freedom + 6 * (2 * freedom) ** 0.5 + 12


@pytest.mark.parametrize("levels", [2, 5, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_the_frequencies_of_log_prob(levels, dtype):
    x = mixture(levels=levels, dtype=dtype)
    drawn = x.sample((50_000,), generator=seeded_generator())
    assert drawn.dtype == torch.long
    statistic, bound = chi_square(drawn, x.categorical().probs.double())
    assert statistic < bound


@pytest.mark.parametrize("broken", ["shifted by half a bin", "clamped to bounds inside"])
def test_the_frequencies_would_notice_a_wrong_discretisation(broken):
    x = mixture(levels=16)
    drawn = x.sample((50_000,), generator=seeded_generator())
    if broken == "shifted by half a bin":
        wrong = x.with_parameters(x.logits, x.means + 1 / 16, x.log_scales)
        drawn = wrong.sample((50_000,), generator=seeded_generator())
    else:
        drawn = drawn.clamp(1, 14)
    statistic, bound = chi_square(drawn, x.categorical().probs)
    assert statistic > bound


def test_a_draw_lands_in_the_bin_that_log_prob_gives_it_to():
    """The mean is one rounding below an edge: its distance from it is lost where 1 is added, and not in log_prob."""
    mean = torch.nextafter(torch.tensor(0.5), torch.tensor(0.0))
    x = DiscretizedLogisticMixture(torch.zeros(1), mean.view(1), torch.tensor([-21.0]))
    assert float(x.log_prob(torch.tensor(192))) < -30
    assert set(x.sample((2000,), generator=seeded_generator()).tolist()) == {191}


@given(st.integers(2, 300), st.floats(-1e4, 1e4), st.floats(-20, 20), st.integers(0, 99))
def test_draws_are_levels(levels, mean, log_scale, seed):
    x = DiscretizedLogisticMixture(torch.zeros(1), torch.tensor([mean]), torch.tensor([log_scale]), levels)
    drawn = x.sample((20,), generator=seeded_generator(seed))
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < levels


def test_it_is_sharpened_as_the_table_of_its_levels():
    x = mixture(4, levels=7)
    table = Categorical(x.log_prob(torch.arange(7).view(7, 1)).t())
    torch.testing.assert_close(x.categorical().probs, table.probs)
    torch.testing.assert_close(x.filtered(0.5, 3, 0.9).probs, table.filtered(0.5, 3, 0.9).probs)
    assert torch.equal(x.filtered(temperature=0.0).sample(), table.logits.argmax(-1))
    assert torch.equal(x.filtered(top_k=1).sample(), table.logits.argmax(-1))
    with pytest.raises(ValueError, match="temperature: expected a number >= 0"):
        x.filtered(temperature=-1.0)


@pytest.mark.parametrize("other", [mixture(2, levels=5), mixture(2, levels=9, components=4)])
def test_mixtures_of_other_levels_or_components_keep_their_own(other):
    parts = [mixture(2, levels=9), other]
    value = torch.randint(5, (2, 2))
    expected = torch.stack([part.log_prob(value[:, t]) for t, part in enumerate(parts)], 1)
    assert torch.equal(DiscretizedLogisticMixture.stacked(parts).log_prob(value), expected)


def test_outputs_of_a_network_are_logits_then_means_then_log_scales():
    outputs = torch.randn(4, DiscretizedLogisticMixture.num_parameters(5))
    x = DiscretizedLogisticMixture.from_parameters(outputs, levels=11)
    assert x.levels == 11
    assert torch.equal(torch.cat(x.parameters, -1), outputs)
    assert x.expand((3, 4)).batch_shape == (3, 4)
    assert x.expand((3, 4)).levels == 11


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiscretizedLogisticMixture(*torch.zeros(3, 2), levels=1), "levels: expected at least 2, got 1"),
        (lambda: DiscretizedLogisticMixture(*torch.zeros(3, 2, 0)), r"logits: expected shape \(..., K\) with K >= 1"),
        (lambda: DiscretizedLogisticMixture(torch.zeros(2), torch.zeros(3), torch.zeros(2)), "means: expected the sh"),
        (lambda: DiscretizedLogisticMixture(*torch.zeros(2, 2), torch.zeros(1)), "log_scales: expected the shape"),
        (lambda: DiscretizedLogisticMixture.from_parameters(torch.zeros(4)), r"outputs: expected shape \(..., 3K\)"),
        (lambda: DiscretizedLogisticMixture.from_parameters(torch.zeros(2, 0)), "outputs: expected shape"),
    ],
)
def test_parameters_that_make_no_mixture_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("levels", "dtype", "values"), [(300, torch.uint8, (3, 250)), (256, torch.int8, (3, 100))])
def test_values_of_a_narrow_type_are_those_of_a_wide_one(levels, dtype, values):
    head, x = DiscretizedLogisticMixture(*torch.zeros(3, 1), levels=levels), torch.tensor(values)
    assert torch.equal(head.log_prob(x.to(dtype)), head.log_prob(x))
    assert head.log_prob(torch.tensor([-1], dtype=torch.int8)).item() == -torch.inf


DIGITS = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
means = st.floats(-1e4, 1e4, width=32) | st.floats(-1.5, 1.5, width=32)
log_scales = st.floats(-20, 20, width=32)


def sigmoid(z: Decimal) -> Decimal:
    return z.exp() / (1 + z.exp()) if z < 0 else 1 / (1 + (-z).exp())


def precisely(value: int, mean: float, log_scale: float, levels: int) -> float:
    """log(σ(b) − σ(a)) with 60 digits, by the plain difference on the side of zero where both are small."""
    with localcontext(DIGITS):
        scale = Decimal(log_scale).exp()
        a = (Decimal(2 * value - levels) / levels - Decimal(mean)) / scale
        b = (Decimal(2 * value + 2 - levels) / levels - Decimal(mean)) / scale
        if value == 0:
            mass = sigmoid(b)
        elif value == levels - 1:
            mass = sigmoid(-a)
        else:
            mass = sigmoid(-a) - sigmoid(-b) if a > 0 else sigmoid(b) - sigmoid(a)
        # The logarithm of a mass near 1 is that of 1 - rest, which the digits hold: rests below 1e-60 are no matter.
        return float(mass.ln())


def ours(value, mean, log_scale, levels, dtype):
    tensors = (torch.tensor(float(number), dtype=dtype) for number in (value, mean, log_scale))
    return float(log_bin_mass(*tensors, levels))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 3e-15)])
@pytest.mark.parametrize("levels", [2, 16, 256, 65536])
def test_the_log_mass_is_right_to_the_last_digits(levels, dtype, tolerance):
    @given(st.integers(0, levels - 1), means, log_scales)
    @example(levels - 1, 1e4, -20.0)
    @example(levels // 2, 1e4, -20.0)
    @example(levels // 2, 2.0**-30, -20.0)
    def holds(value, mean, log_scale):
        expected = precisely(value, mean, log_scale, levels)
        # a few units in the last place of the terms, which have one sign
        assert abs(ours(value, mean, log_scale, levels, dtype) - expected) <= tolerance * max(1, abs(expected))

    holds()


def test_sixty_digits_would_notice_a_clamp():
    """The usual guard, log(max(mass, 1e-12)), is wrong by as many nats as one likes."""
    mean, log_scale = torch.tensor(-1.0), torch.tensor(-4.0)
    upper, lower = (((torch.tensor(edge) - mean) / log_scale.exp()).sigmoid() for edge in (1.0, 1.0 - 2 / 256))
    clamped = float((upper - lower).clamp_min(1e-12).log())
    assert abs(clamped - precisely(254, -1.0, -4.0, 256)) > 10


def test_its_gradient_is_that_of_the_function():
    random = torch.Generator().manual_seed(0)
    value = torch.randint(16, (64,), generator=random).double()
    mean, log_scale = (torch.randn(64, generator=random, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda m, s: log_bin_mass(value, m, 2 * s - 1, 16), (mean, log_scale))
