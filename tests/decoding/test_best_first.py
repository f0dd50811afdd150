"""The k greatest come in one order, equals included, in a whole table and a few rows at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions

from chainrule.decoding import _decoded as module
from chainrule.decoding._decoded import WIDE, best_first, best_symbols
from chainrule.heads import Categorical, DiscretizedLogisticMixture


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 8), st.integers(1, 30))
def test_it_is_a_stable_sort_cut_at_k(seed, columns, kinds, k):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(kinds, (5, columns), generator=generator).float()
    scores[torch.rand(5, columns, generator=generator) < 0.2] = -torch.inf
    values, places = best_first(scores, k)
    expected = scores.sort(stable=True, dim=1, descending=True)
    k = min(k, columns)
    assert torch.equal(values, expected.values[:, :k])
    possible = values > -torch.inf
    assert torch.equal(places[possible], expected.indices[:, :k][possible])
    assert torch.equal(scores.gather(1, places), values)


@given(
    st.integers(0, 2**31),
    st.integers(WIDE - 3, 3 * WIDE),
    st.integers(1, 3000),
    st.integers(1, 7),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_wide_rows_are_no_different(seed, columns, kinds, k, dtype):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-kinds, kinds, (3, columns), generator=generator).to(dtype) / 7 * -0.0001
    scores[:2, torch.rand(columns, generator=generator) < 0.5] = -torch.inf
    values, places = best_first(scores, k)
    expected = scores.sort(stable=True, dim=1, descending=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(places, expected.indices[:, :k])


def test_nan_comes_first_so_that_a_search_can_notice_it():
    assert best_first(torch.tensor([[1.0, torch.nan, 2.0]]), 2)[0][0, 0].isnan()
    for place in (7, 2 * WIDE - 1):
        for nan in (torch.nan, -torch.nan):
            wide = torch.arange(2.0 * WIDE).index_fill(0, torch.tensor(place), nan).unsqueeze(0)
            assert best_first(wide, 2)[0][0, 0].isnan()


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
