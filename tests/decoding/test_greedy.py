"""Greedy decoding takes the argmax at every step; a beam of one does the same."""

from functools import partial

import pytest
import torch
from decoded_models import Table, TinyDecoder
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding import beam_search, greedy

CONTEXT = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@given(seed=st.integers(0, 10_000), vocab_size=st.integers(2, 9), max_length=st.integers(1, 12))
def test_it_is_the_sample_of_temperature_zero(seed, vocab_size, max_length):
    model = TinyDecoder(vocab_size, seed=seed)
    drawn = model.sample(len(CONTEXT), CONTEXT, length=max_length, temperature=0, eos=0)
    for row, result in zip(drawn.tolist(), greedy(model, CONTEXT, max_length=max_length, eos=0), strict=True):
        ended = 0 in row
        assert result.sequences[0].tolist() == (row[: row.index(0)] if ended else row)
        assert result.proven is result.ended[0].item() is ended


@given(seed=st.integers(0, 10_000), length_penalty=st.floats(0, 3), no_repeat_ngram=st.sampled_from([None, 2]))
def test_a_beam_of_one_equals_it_whatever_the_length_penalty(seed, length_penalty, no_repeat_ngram):
    model = TinyDecoder(vocab_size=5, seed=seed)
    options = {"max_length": 9, "eos": 0, "min_length": 2, "no_repeat_ngram": no_repeat_ngram}
    for one, beam in zip(
        greedy(model, CONTEXT, **options),
        beam_search(model, CONTEXT, beam_size=1, length_penalty=length_penalty, **options),
        strict=True,
    ):
        assert torch.equal(one.sequences[0], beam.sequences[0])
        assert torch.equal(one.log_probs, beam.log_probs)


def test_of_equals_the_lowest_symbol_is_taken():
    assert greedy(Table([[0.2] * 5] * 6), max_length=3, eos=4)[0].sequences[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("search", [greedy, partial(beam_search, beam_size=1)])
def test_scores_that_become_equal_when_normalised_are_told_apart_as_in_a_sample(search):
    class Close(TinyDecoder):
        def scores(self, h, x_prev):
            return torch.tensor([-1.0, 1e-9, 2e-9, 0.0, 1.0e-9]).expand(len(x_prev), 5)

    model = Close(vocab_size=5)
    assert search(model, max_length=3, eos=0)[0].sequences[0].tolist() == [2, 2, 2]
    assert model.sample(1, length=3, temperature=0).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("min_length", [0, 1, 4])
def test_it_does_not_end_before_the_minimum(min_length):
    model = Table([[1.0, 0.0], [0.9, 0.1], [0.9, 0.1]])
    [result] = greedy(model, max_length=6, eos=0, min_length=min_length)
    assert result.sequences[0].tolist() == [1] * min_length
    expected = torch.tensor(0.1).double().log() * min_length + torch.tensor(0.9).double().log()
    torch.testing.assert_close(result.log_probs[0], expected, rtol=1e-6, atol=0)


def test_a_greedy_result_claims_no_more_than_that_it_ended():
    """The most probable first symbol leads away from the most probable sequence."""
    first, after_one, after_two = [0.0, 0.6, 0.4], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]

    class Garden(TinyDecoder):
        def scores(self, h, x_prev):
            table = torch.tensor([after_one, after_one, after_two, first], dtype=torch.float64)
            return table[x_prev].log()

    model = Garden(vocab_size=3)
    [greedily], [widely] = (
        search(model, max_length=3, eos=0) for search in (greedy, lambda *a, **o: beam_search(*a, beam_size=9, **o))
    )
    assert greedily.sequences[0].tolist() == [1]
    assert widely.sequences[0].tolist() == [2]
    assert widely.log_probs[0] > greedily.log_probs[0]
    assert greedily.proven == greedily.ended[0].item()


def test_a_prefix_that_has_ended_is_refused():
    with pytest.raises(ValueError, match="prefix: row 1 ends in eos=0: a sequence that has ended is not extended"):
        greedy(TinyDecoder(4), max_length=5, eos=0, prefix=torch.tensor([[0, 1], [1, 0]]))
