import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from chainrule.heads import DiagonalNormal


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


def test_parameters_of_two_shapes_are_refused():
    with pytest.raises(ValueError, match="mean, log_scale: expected two tensors of one shape"):
        DiagonalNormal(torch.zeros(2, 3), torch.zeros(3))


@pytest.mark.parametrize("log_scale", [-89.0, -1000.0])
def test_the_narrowest_scales_have_densities_and_divergences(log_scale):
    narrow = DiagonalNormal(torch.zeros(1), torch.tensor([log_scale]))
    assert narrow.log_prob(torch.zeros(1)).item() == pytest.approx(-log_scale - 0.5 * math.log(2 * math.pi))
    assert narrow.log_prob(torch.ones(1)).item() == -math.inf
    assert narrow.kl(narrow).item() == 0
