"""Any distribution of torch is a head: it draws from a generator, and is filtered where it is over symbols."""

import pytest
import torch
from torch import distributions

from chainrule.heads import Categorical
from chainrule.heads._adapter import head_of

OWN = Categorical(torch.zeros(4, 3))
KINDS = [
    OWN,
    distributions.Categorical(logits=torch.zeros(4, 3)),
    distributions.Normal(torch.zeros(4), 1.0),
    distributions.Bernoulli(torch.full((4,), 0.5)),
    distributions.Independent(distributions.Normal(torch.zeros(4, 2), 1.0), 1),
    distributions.LogNormal(torch.zeros(4), 1.0),
]


def test_without_a_generator_the_global_one_is_used():
    torch.manual_seed(1)
    first = head_of(distributions.Normal(torch.zeros(4), 1.0)).sample((3,))
    torch.manual_seed(1)
    assert torch.equal(first, distributions.Normal(torch.zeros(4), 1.0).sample((3,)))


@pytest.mark.parametrize("kind", [Categorical, lambda logits: distributions.Categorical(logits=logits)])
def test_categorical_draws_are_filtered(kind):
    die = head_of(kind(torch.tensor([[3.0, 2.0, 1.0]]).expand(300, 3)))
    assert set(die.filtered(temperature=0.0).sample().tolist()) == {0}
    assert set(die.filtered(top_k=2).sample().tolist()) == {0, 1}
    assert set(die.filtered(top_p=0.1).sample().tolist()) == {0}


def test_a_head_is_itself_and_others_keep_their_densities_and_supports():
    assert head_of(OWN) is OWN
    for distribution in KINDS[1:]:
        head, x = head_of(distribution), distribution.sample()
        torch.testing.assert_close(head.log_prob(x), distribution.log_prob(x))
        assert (head.batch_shape, head.event_shape) == (distribution.batch_shape, distribution.event_shape)
        assert repr(head.support) == repr(distribution.support)
        assert head.has_enumerate_support == distribution.has_enumerate_support
    counts = distributions.Binomial(3, torch.tensor([0.2, 0.9]))
    assert torch.equal(head_of(counts).enumerate_support(), counts.enumerate_support())


def test_symbols_have_a_table_and_densities_have_none():
    coin = distributions.Bernoulli(probs=torch.tensor([0.75, 0.5]))
    torch.testing.assert_close(head_of(coin).categorical().probs, torch.tensor([[0.25, 0.75], [0.5, 0.5]]))
    assert head_of(distributions.Normal(torch.zeros(2), 1.0)).categorical() is None


def test_probabilities_that_torch_was_given_are_kept_to_the_last():
    """torch bounds the logits of given probabilities: an impossible symbol was drawn once in some ten million times."""
    probs = torch.tensor([0.5, 0.5, 0.0], requires_grad=True)
    head = head_of(distributions.Categorical(probs=probs))
    assert head.log_prob(torch.arange(3)).tolist()[2] == -torch.inf
    head.log_prob(torch.tensor(0)).backward()
    assert probs.grad is not None
    assert probs.grad.isfinite().all()
    coins = torch.tensor([1e-12, 0.0, 1.0, 0.3], dtype=torch.float64)
    torch.testing.assert_close(head_of(distributions.Bernoulli(probs=coins)).probs, coins, rtol=1e-12, atol=0)
