"""The log-mass of a bin against sixty digits, against plain differences, and anywhere on the line."""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from chainrule.heads._logistic_mixtures import log_bin_mass

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
