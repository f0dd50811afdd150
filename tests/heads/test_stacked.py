"""Distributions side by side are one distribution."""

import torch
from torch import distributions

from chainrule.heads import Categorical, IntegerLogisticMixture
from chainrule.heads._adapter import head_of


def stack(parts):
    """What a model's `unroll` makes of the conditionals of its steps."""
    heads = [head_of(part) for part in parts]
    return heads[0].stacked(heads)


def test_values_are_broadcast_before_the_batch():
    joined = stack([distributions.Normal(torch.randn(2), 1.0) for _ in range(3)])
    x = torch.randn(7, 2, 3)
    assert joined.log_prob(x).shape == (7, 2, 3)
    assert torch.equal(joined.log_prob(x)[4], joined.log_prob(x[4]))


def test_a_listed_support_is_that_of_the_parts():
    joined = stack([distributions.Bernoulli(torch.full((2,), 0.5)) for _ in range(3)])
    assert joined.has_enumerate_support
    assert torch.equal(joined.enumerate_support(expand=False), torch.tensor([0.0, 1.0]).view(2, 1, 1))
    assert joined.enumerate_support().shape == (2, 2, 3)
    assert joined.log_prob(joined.enumerate_support()).exp().sum(0).allclose(torch.ones(2, 3))
    assert not stack([distributions.Normal(torch.zeros(2), 1.0)]).has_enumerate_support
    assert joined.support is distributions.Bernoulli.support


def test_heads_of_several_kinds_draw_from_the_generator_and_are_filtered_one_by_one():
    parts = [Categorical(torch.tensor([[3.0, 2.0]])), distributions.Bernoulli(torch.tensor([0.9]))]
    assert stack(parts).filtered(temperature=0.0).sample((3,)).tolist() == [[[0, 1]]] * 3
    joined = stack([distributions.Normal(torch.zeros(2), 1.0), distributions.Laplace(torch.zeros(2), 1.0)])
    one, again, other = (joined.sample(generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_integers_keep_the_smallest_of_each_part():
    parts = [IntegerLogisticMixture(*torch.zeros(3, 2, 1), low=torch.tensor([low, low])) for low in (0.0, 5.0)]
    joined = stack(parts)
    assert isinstance(joined, IntegerLogisticMixture)
    x = torch.full((2, 2), 3.0)
    assert torch.equal(joined.log_prob(x), torch.stack([part.log_prob(x[:, t]) for t, part in enumerate(parts)], 1))
    assert torch.isinf(joined.log_prob(x)).tolist() == [[False, True]] * 2
