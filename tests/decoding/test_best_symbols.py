"""Looking at a few rows at a time finds what the whole table shows."""

import pytest
import torch
from torch import distributions

from chainrule.decoding import _decoded as module
from chainrule.decoding._decoded import best_first, best_symbols
from chainrule.heads import Categorical, DiscretizedLogisticMixture


def everything(log_probs, rows):
    return log_probs


@pytest.mark.parametrize("cache", [1, 40, 10**6])
def test_pieces_of_any_size_give_the_same(cache, monkeypatch):
    monkeypatch.setattr(module, "CACHE", cache)
    scores = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    forbidden = torch.rand(7, 20, generator=torch.Generator().manual_seed(1)) < 0.5

    def permitted(log_probs, rows):
        return log_probs.masked_fill(forbidden[rows], -torch.inf)

    values, symbols = best_symbols(Categorical(scores), 3, permitted)
    expected = best_first(scores.log_softmax(1).masked_fill(forbidden, -torch.inf), 3)
    assert torch.equal(values, expected[0])
    assert torch.equal(symbols, expected[1])


def test_other_distributions_over_symbols_are_looked_at_as_a_table():
    values, symbols = best_symbols(distributions.Bernoulli(probs=torch.tensor([0.75, 0.5])), 5, everything)
    assert symbols.tolist() == [[1, 0], [0, 1]]
    torch.testing.assert_close(values.exp(), torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    assert best_symbols(Categorical(torch.zeros(0, 4)), 2, everything)[0].shape == (0, 2)


def test_the_levels_of_a_mixture_are_symbols_too():
    mixture = DiscretizedLogisticMixture(torch.zeros(2, 1), torch.tensor([[-0.9], [0.3]]), torch.zeros(2, 1), levels=5)
    values, symbols = best_symbols(mixture, 2, everything)
    expected = best_first(mixture.log_prob(torch.arange(5).unsqueeze(1)).t(), 2)
    torch.testing.assert_close(values, expected[0])
    assert torch.equal(symbols, expected[1])
