"""The channels of a pixel: one joint density, the same channel by channel."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mixture_models import TinyPixels

from chainrule.heads import DiscretizedLogisticMixture, PixelLogisticMixture
from chainrule.testing._stepping import check_step_equals_forward


def pixels(*shape, channels=3, components=2, levels=4, seed=0, dtype=torch.float64):
    count = PixelLogisticMixture.num_parameters(channels, components)
    outputs = torch.randn(*shape, count, generator=seeded_generator(seed), dtype=dtype)
    return PixelLogisticMixture.from_parameters(1.5 * outputs, channels, levels)


def every(levels, channels):
    return torch.tensor(list(product(range(levels), repeat=channels)))


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cumulative(edge, mean, log_scale):
    return ((edge - mean) / log_scale.exp()).sigmoid()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_it_sums_to_one_over_all_pixels(channels):
    x = pixels(5, channels=channels)
    total = x.log_prob(every(4, channels).unsqueeze(1)).exp().sum(0)
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)


def test_it_is_the_mixture_of_products_with_each_mean_linear_in_the_channels_before():
    x, value = pixels(), every(4, 3)
    u = (2 * value.double() + 1) / 4 - 1  # the middles of the bins
    red, green, _ = u.unbind(-1)
    on = x.coefficients  # green on red, blue on red, blue on green
    expected = torch.zeros(len(value), dtype=torch.float64)
    for k in range(2):
        means = [x.means[0, k], x.means[1, k] + on[0, k] * red, x.means[2, k] + on[1, k] * red + on[2, k] * green]
        mass = x.logits.softmax(-1)[k]
        for v, mean, log_scale in zip(value.double().unbind(-1), means, x.log_scales[:, k], strict=True):
            upper = torch.where(v < 3, cumulative((v + 1) / 2 - 1, mean, log_scale), 1)
            lower = torch.where(v > 0, cumulative(v / 2 - 1, mean, log_scale), 0)
            mass = mass * (upper - lower)
        expected += mass
    torch.testing.assert_close(x.log_prob(value), expected.log(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_joint_density_is_the_product_of_the_conditionals(channels):
    x = pixels(3, 2, channels=channels)
    value = torch.randint(4, (3, 2, channels))
    conditionals = x.conditionals(value)
    assert isinstance(conditionals, DiscretizedLogisticMixture)
    assert conditionals.batch_shape == (3, 2, channels)
    torch.testing.assert_close(conditionals.log_prob(value).sum(-1), x.log_prob(value), rtol=0, atol=1e-12)
    for channel in range(channels):
        alone = x.conditional(value[..., :channel])
        assert alone.batch_shape == (3, 2)
        expected = conditionals.log_prob(value)[..., channel]
        torch.testing.assert_close(alone.log_prob(value[..., channel]), expected, rtol=0, atol=1e-12)


def test_without_posterior_weights_the_product_is_another_density():
    x, value = pixels(), every(4, 3)
    conditionals = x.conditionals(value)
    prior = conditionals.with_parameters(
        x.logits.expand(conditionals.logits.shape), conditionals.means, conditionals.log_scales
    )
    assert (prior.log_prob(value).sum(-1) - x.log_prob(value)).abs().max() > 0.1


def test_a_conditional_is_the_ratio_of_sums_of_the_joint_density():
    x, table = pixels(), pixels().log_prob(every(4, 3)).exp().view(4, 4, 4)
    expected = table[2].sum(-1) / table[2].sum()
    torch.testing.assert_close(x.conditional(torch.tensor([2])).categorical().probs, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        x.conditional(torch.tensor([2, 1])).categorical().probs, table[2, 1] / table[2, 1].sum(), rtol=0, atol=1e-12
    )


def test_no_conditional_reads_its_own_channel_or_a_later_one():
    x, value = pixels(), torch.tensor([1, 2, 3])
    for channel in range(3):
        for other in range(4):
            changed = value.clone()
            changed[channel:] = other
            left, right = x.conditionals(value), x.conditionals(changed)
            for one, two in zip(left.parameters, right.parameters, strict=True):
                assert torch.equal(one[: channel + 1], two[: channel + 1])


def chi_square(drawn, x):
    cells = (drawn * torch.tensor([16, 4, 1])).sum(-1)
    expected = len(drawn) * x.log_prob(every(4, 3)).exp()
    return float(((torch.bincount(cells, minlength=64) - expected) ** 2 / expected).sum())


BOUND = 63 + 6 * (2 * 63) ** 0.5 + 12  # six standard deviations above the mean, and something for the skew


@pytest.fixture
def even():
    """A pixel no cell of which is rare, strongly coupled."""
    x = pixels()
    return PixelLogisticMixture(x.logits / 2, x.means / 4, x.log_scales / 4 - 0.5, x.coefficients, 4)


def test_draws_have_the_frequencies_of_log_prob(even):
    drawn = even.sample((40_000,), generator=seeded_generator())
    assert (40_000 * even.log_prob(every(4, 3)).exp()).min() > 5
    assert chi_square(drawn, even) < BOUND


def test_the_frequencies_would_notice_means_coupled_with_something_else_than_what_was_drawn(even):
    red = even.conditional(torch.empty(40_000, 0)).sample(generator=seeded_generator(1))
    stale = torch.full((40_000, 1), 2)  # say, the mean in place of the sample
    green = even.conditional(stale).sample(generator=seeded_generator(2))
    blue = even.conditional(torch.stack([red, green], -1)).sample(generator=seeded_generator(3))
    assert chi_square(torch.stack([red, green, blue], -1), even) > BOUND


def test_a_component_drawn_anew_for_each_channel_would_be_noticed(even):
    drawn = torch.empty(40_000, 0, dtype=torch.long)
    for channel in range(3):
        posterior = even.conditional(drawn)
        prior = posterior.with_parameters(even.logits.expand(40_000, 2), posterior.means, posterior.log_scales)
        drawn = torch.cat([drawn, prior.sample(generator=seeded_generator(channel)).unsqueeze(-1)], -1)
    assert chi_square(drawn, even) > BOUND


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_draws_come_from_the_generator_channel_by_channel(shape):
    x, generator = pixels(2), seeded_generator()
    drawn = x.sample(shape, generator=seeded_generator())
    for channel in range(3):
        conditional = x.expand((*shape, 2)).conditional(drawn[..., :channel])
        assert torch.equal(conditional.sample(generator=generator), drawn[..., channel])


extreme = st.tuples(st.floats(-1e4, 1e4, width=32), st.floats(-20, 20, width=32))


@given(st.lists(extreme, min_size=6, max_size=6), st.lists(st.floats(-1e4, 1e4, width=32), min_size=8, max_size=8))
def test_value_and_gradient_are_finite_anywhere_jointly_and_channel_by_channel(rows, others):
    means, log_scales = torch.tensor(rows).unflatten(0, (3, 2)).unbind(-1)
    logits, coefficients = torch.tensor(others[:2]), torch.tensor(others[2:]).view(3, 2)
    parameters = [part.clone().requires_grad_() for part in (logits, means, log_scales, coefficients)]
    x = PixelLogisticMixture(*parameters)
    value = torch.tensor([[0, 0, 0], [255, 255, 255], [0, 255, 7], [127, 128, 255]])
    for terms in (x.log_prob(value), x.conditionals(value).log_prob(value)):
        gradients = torch.autograd.grad(terms.sum(), parameters)
        assert terms.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients)
    drawn = x.sample((4,), generator=seeded_generator())
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 256


def test_its_gradient_is_that_of_the_function():
    x, value = pixels(4), torch.randint(4, (4, 3))
    parts = [part.clone().requires_grad_() for part in (x.logits, x.means, x.log_scales, x.coefficients)]
    assert torch.autograd.gradcheck(lambda *p: PixelLogisticMixture(*p, levels=4).log_prob(value), parts)
    assert torch.autograd.gradcheck(
        lambda *p: PixelLogisticMixture(*p, levels=4).conditionals(value).log_prob(value), parts
    )


def test_float32_is_float64_to_six_digits():
    outputs, value = torch.randn(40, 100), torch.randint(256, (40, 3))
    single = PixelLogisticMixture.from_parameters(outputs, 3).log_prob(value)
    exact = PixelLogisticMixture.from_parameters(outputs.double(), 3).log_prob(value)
    torch.testing.assert_close(single.double(), exact, rtol=2e-6, atol=2e-6)  # coupled means are rounded


def test_a_pixel_with_a_channel_that_is_no_level_has_probability_zero():
    values = torch.tensor([[0, 1, 4], [-1, 0, 0], [0, 1, 2]])
    assert (pixels().log_prob(values) == -torch.inf).tolist() == [True, True, False]


def test_outputs_of_a_network_are_rows_of_logits_means_log_scales_and_coefficients():
    outputs = torch.randn(2, PixelLogisticMixture.num_parameters(3, 10), dtype=torch.float64)
    x = PixelLogisticMixture.from_parameters(outputs, 3)
    assert outputs.shape == (2, 100)
    log_scales = (x.log_scales.exp() - 2 / 256 * math.exp(-3.5)).log()
    rows = [x.logits.unsqueeze(-2), x.means, log_scales, x.coefficients]
    torch.testing.assert_close(torch.cat(rows, -2).flatten(1), outputs, rtol=1e-12, atol=1e-12)
    assert (x.batch_shape, x.event_shape, x.levels) == ((2,), (3,), 256)


def test_a_network_makes_no_scale_too_narrow_for_its_gradient():
    outputs = torch.tensor([[0.0, 1 / 256, -50.0]], requires_grad=True)  # in the middle of level 128
    pixel = PixelLogisticMixture.from_parameters(outputs, 1)
    assert pixel.log_prob(torch.tensor([[128]])).exp() > 1 - 1e-6
    (gradient,) = torch.autograd.grad(pixel.log_prob(torch.tensor([[200]])).sum(), outputs)
    assert gradient.abs().max() < 1.01 * 128 * math.exp(3.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pixels(levels=1), "levels: expected at least 2, got 1"),
        (lambda: pixels().conditional(torch.zeros(3)), r"earlier: expected \(..., c\) with c < 3 channels, got \(3,\)"),
        (lambda: PixelLogisticMixture.from_parameters(torch.zeros(2, 11), 3), "outputs: .* multiple of 10"),
        (
            lambda: PixelLogisticMixture.from_parameters(torch.zeros(2, 10), 0),
            "channels: expected an integer >= 1, got 0",
        ),
        (lambda: PixelLogisticMixture(*torch.zeros(4, 2)), r"means: expected shape \(..., C, K\)"),
        (
            lambda: PixelLogisticMixture(torch.zeros(5, 2), *torch.zeros(2, 5, 3, 2), torch.zeros(5, 2, 2)),
            r"coefficients: expected shape \(5, 3, 2\)",
        ),
        (
            lambda: PixelLogisticMixture(torch.zeros(2), torch.zeros(3, 2), torch.zeros(3, 1), torch.zeros(3, 2)),
            r"log_scales: expected shape \(3, 2\)",
        ),
    ],
)
def test_what_makes_no_pixel_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class PriorWeights(TinyPixels):
    """Draws a component anew for each channel, as a sampler of many published models does."""

    @staticmethod
    def conditional_of(pixel, earlier):
        posterior = pixel.conditional(earlier)
        return posterior.with_parameters(
            pixel.logits.expand(posterior.logits.shape), posterior.means, posterior.log_scales
        )


def test_the_contract_is_broken_by_a_step_that_leaves_out_posterior_weights():
    model, x = PriorWeights(), torch.randint(4, (2, 6))
    assert not check_step_equals_forward(model, x).ok
