"""CategoricalMean is the mean of probabilities, whatever its parts are made of."""

import pytest
import torch

from chainrule.heads import AdaptiveCategorical, Categorical, CategoricalMean

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
