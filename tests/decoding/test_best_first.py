"""The k greatest come in one order, equals included."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding._decoded import WIDE, best_first


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
