"""The mean of mixtures is one of all their components, where they are alike."""

import pytest
import torch

from chainrule.heads import DiscretizedLogisticMixture, GaussianMixture, IntegerLogisticMixture, StudentTMixture
from chainrule.heads._real_mixtures import LocationScaleMixture


def mixtures(kind, *settings, components=(2, 3)):
    random = torch.Generator().manual_seed(0)
    return [
        kind.from_parameters(torch.randn(4, kind.num_parameters(K), generator=random).double(), *settings)
        for K in components
    ]


@pytest.mark.parametrize(
    ("kind", "settings", "value"),
    [
        (GaussianMixture, (), torch.linspace(-2, 2, 4)),
        (StudentTMixture, (), torch.linspace(-2, 2, 4)),
        (DiscretizedLogisticMixture, (8,), torch.tensor([0, 3, 4, 7])),
    ],
)
def test_the_density_is_the_mean_of_densities(kind, settings, value):
    parts = mixtures(kind, *settings)
    mean = LocationScaleMixture.mean_of(parts)
    assert type(mean) is kind
    expected = torch.stack([part.log_prob(value).exp() for part in parts]).mean(0)
    torch.testing.assert_close(mean.log_prob(value).exp(), expected, rtol=1e-12, atol=0)


def test_mixtures_that_differ_are_refused():
    shared = mixtures(IntegerLogisticMixture)  # its components have a lowest value in common
    levels = [*mixtures(DiscretizedLogisticMixture, 4), *mixtures(DiscretizedLogisticMixture, 8)]
    rows = [mixtures(GaussianMixture)[0], mixtures(GaussianMixture)[1].expand((2, 4))]
    for parts in (shared, levels, rows, [*mixtures(GaussianMixture), *mixtures(StudentTMixture)]):
        with pytest.raises(ValueError, match="one class, settings and batch shape"):
            LocationScaleMixture.mean_of(parts)
