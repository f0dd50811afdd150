"""Means of distributions and distributions side by side are one distribution."""

import pytest
import torch
from torch import distributions

from chainrule.heads import (
    Categorical,
    DiscretizedLogisticMixture,
    GaussianMixture,
    IntegerLogisticMixture,
    StudentTMixture,
)
from chainrule.heads._adapter import head_of
from chainrule.heads._computed_categorical import AdaptiveCategorical, CategoricalMean
from chainrule.heads._real_mixtures import LocationScaleMixture

V, M = 7, 4


def parts(*shape):
    """A softmax and one in clusters."""
    random = torch.Generator().manual_seed(0)

    def draw(*size):
        return torch.randn(*size, generator=random, dtype=torch.float64)

    tail = (draw(2, M), draw(4, 2), draw(4))
    return [Categorical(draw(*shape, V)), AdaptiveCategorical(draw(*shape, M), (draw(4, M), draw(4)), [tail])]


def expected(shape=(3, 5)):
    return torch.stack([part.probs for part in parts(*shape)]).mean(0)


def test_it_is_the_mean_of_probabilities():
    mean, value = CategoricalMean(parts(3, 5)), torch.arange(15).view(3, 5) % V
    torch.testing.assert_close(mean.probs, expected(), rtol=1e-12, atol=0)
    torch.testing.assert_close(mean.logits, expected().log(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mean.categorical().probs, expected())
    picked = expected().gather(2, value.unsqueeze(2)).squeeze(2).log()
    torch.testing.assert_close(mean.log_prob(value), picked)
    torch.testing.assert_close(mean.log_prob(torch.tensor(2)), expected()[..., 2].log())  # a value for the whole batch
    assert mean.support.upper_bound == V - 1
    assert mean.param_shape == (3, 5, V)


def test_a_likelihood_makes_no_table_of_all_symbols(monkeypatch):
    mean = CategoricalMean(parts(3))
    monkeypatch.setattr(AdaptiveCategorical, "logits", property(lambda self: pytest.fail("all symbols were scored")))
    mean.log_prob(torch.tensor([0, 3, 6]))
    with pytest.raises(pytest.fail.Exception):
        mean.probs.sum()


def test_draws_follow_the_mean():
    mean, count = CategoricalMean(parts()), 40_000
    drawn = mean.sample((count,), generator=torch.Generator().manual_seed(0)).bincount(minlength=V) / count
    torch.testing.assert_close(drawn.double(), expected(()), rtol=0, atol=0.012)
    one = CategoricalMean([part.expand((count,)) for part in parts()]).sample(
        generator=torch.Generator().manual_seed(1)
    )
    torch.testing.assert_close((one.bincount(minlength=V) / count).double(), expected(()), rtol=0, atol=0.012)
    assert mean.filtered(temperature=0).sample() == expected(()).argmax()
    kept = mean.filtered(top_k=2).probs
    assert (kept > 0).sum() == 2
    torch.testing.assert_close(
        kept.max() / kept.sum(), expected(()).topk(2).values[0] / expected(()).topk(2).values.sum()
    )


def test_steps_are_stacked_and_expanded_as_one():
    tables = [part.logits for part in parts(3, 5)]
    steps = [CategoricalMean([Categorical(table[:, t]) for table in tables]) for t in range(5)]
    joined = CategoricalMean.stacked(steps)
    assert isinstance(joined, CategoricalMean)
    torch.testing.assert_close(joined.probs, expected())
    other = CategoricalMean(parts(3)[:1])  # of one part: another kind
    value = torch.zeros(3, 6, dtype=torch.long)
    both = CategoricalMean.stacked([*steps, other])
    torch.testing.assert_close(both.log_prob(value)[:, 5], other.log_prob(value[:, 5]))
    assert steps[0].expand((2, 3)).log_prob(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3)


def test_a_draw_leaves_gradients_as_they_are():
    scores = torch.zeros(3, V, requires_grad=True)
    mean = CategoricalMean([Categorical(scores), Categorical(scores.detach())])
    with torch.no_grad():
        mean.sample()
    assert mean.entropy().requires_grad


def test_gradients_are_those_of_the_mean():
    scores = torch.randn(2, 3, V, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    value = torch.tensor([0, 3, 6])
    assert torch.autograd.gradcheck(
        lambda *rows: CategoricalMean([Categorical(row) for row in rows]).log_prob(value),
        [row.clone().requires_grad_() for row in scores],
    )


def test_parts_must_fit_together():
    with pytest.raises(ValueError, match="at least one"):
        CategoricalMean([])
    with pytest.raises(ValueError, match=r"got \(3, 7\), \(3, 8\)"):
        CategoricalMean([Categorical(torch.zeros(3, 7)), Categorical(torch.zeros(3, 8))])
    with pytest.raises(ValueError, match=r"got \(3, 7\), \(2, 7\)"):
        CategoricalMean([Categorical(torch.zeros(3, 7)), Categorical(torch.zeros(2, 7))])


def test_weights_of_the_parts():
    weights = torch.tensor([0.2, 0.8], dtype=torch.float64)
    mean = CategoricalMean(parts(3, 5), weights.log())
    one, other = parts(3, 5)
    weighted = 0.2 * one.probs + 0.8 * other.probs
    torch.testing.assert_close(mean.probs, weighted, rtol=1e-12, atol=0)
    value = torch.arange(15).view(3, 5) % V
    torch.testing.assert_close(mean.log_prob(value), weighted.gather(2, value.unsqueeze(2)).squeeze(2).log())
    torch.testing.assert_close(mean.with_parameters(*mean.parameters).probs, weighted, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"log_weights: expected \(2,\), got \(3,\)"):
        CategoricalMean(parts(3), torch.zeros(3))


def test_steps_are_joined_where_their_weights_agree():
    def steps(*weights):
        pair = [Categorical(torch.zeros(3, V)), Categorical(torch.ones(3, V))]
        given = [None if share is None else torch.tensor([1 - share, share]) for share in weights]
        return [CategoricalMean(pair, weight) for weight in given]

    for alike in ((None, None), (0.3, 0.3)):
        assert isinstance(CategoricalMean.stacked(steps(*alike)), CategoricalMean)
    for apart in ((None, 0.3), (0.3, None), (0.3, 0.4)):
        assert not isinstance(CategoricalMean.stacked(steps(*apart)), CategoricalMean)


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
