"""A search ends when nothing that lives can change its result, and always with a result."""

import math

import pytest
import torch
from decoded_models import CONTEXT, EOS, Table, TinyDecoder, as_lists
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding import beam_search


def test_rows_that_are_done_and_prefixes_that_ended_are_stepped_no_further():
    model = TinyDecoder(vocab_size=8)
    model.bias.data[EOS] = 2.0
    alone = []
    for row in range(len(CONTEXT)):
        model.stepped.clear()
        beam_search(model, CONTEXT[row : row + 1], beam_size=4, max_length=12, eos=EOS)
        alone.append(list(model.stepped))
    model.stepped.clear()
    beam_search(model, CONTEXT, beam_size=4, max_length=12, eos=EOS)
    assert len({len(steps) for steps in alone}) > 1
    assert max(map(len, alone)) < 12
    assert model.stepped == [sum(steps[t] for steps in alone if t < len(steps)) for t in range(max(map(len, alone)))]


class Late(Table):
    """Ends at once with 0.4; or says 1, then 2 for certain, then ends for certain, with 0.6 in all."""

    def __init__(self):
        super().__init__([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.4, 0.6, 0.0]])


def test_it_does_not_stop_at_the_first_ended_hypothesis():
    """One that is alive comes out better, if only it is let live."""
    [result] = beam_search(Late(), beam_size=2, max_length=9, eos=EOS)
    assert as_lists([result]) == [[[1, 2]]]
    assert float(result.log_probs[0].exp()) == pytest.approx(0.6)
    assert result.proven


def test_with_a_length_penalty_a_live_prefix_of_lower_score_may_still_win():
    """joeynmt/joeynmt#148 and OpenNMT/OpenNMT-py#1320: rows were done as soon as their best hypothesis had ended.

    Here that is the empty sequence, of score log 0.5. A live prefix has log 0.2 then, and ends after four elements with
    the same probability: with α = 1 its score is log 0.2 / 4, which is greater.
    """
    certain = [[0.0] * 5 for _ in range(6)]
    certain[0][0] = certain[1][2] = certain[2][3] = certain[3][0] = certain[4][4] = 1.0
    certain[5] = [0.5, 0.2, 0.0, 0.0, 0.3]
    model = Table(certain)
    [plain] = beam_search(model, beam_size=3, max_length=6, eos=EOS)
    assert as_lists([plain]) == [[[]]]
    [result] = beam_search(model, beam_size=3, max_length=6, eos=EOS, length_penalty=1.0)
    assert as_lists([result]) == [[[1, 2, 3]]]
    assert float(result.scores[0]) == pytest.approx(math.log(0.2) / 4)


def test_it_ends_where_the_model_never_does_and_the_result_is_not_empty():
    """sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning#142: no caption ended, and the best of none was asked for."""
    model = Table([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.9, 0.1], [0.0, 0.3, 0.7]])
    [result] = beam_search(model, beam_size=2, max_length=3, eos=EOS, n_best=2)
    assert as_lists([result]) == [[[2, 1, 1], [2, 1, 2]]]
    assert result.ended.tolist() == [False, False]
    assert not result.proven
    assert result.gap == math.inf


def test_the_gap_bounds_what_a_longer_search_gains():
    gained = unproven = 0
    for seed in range(10):
        model = TinyDecoder(vocab_size=3, seed=seed)
        model.bias.data[EOS] = -1.0
        short = beam_search(model, CONTEXT, beam_size=3, max_length=3, eos=EOS)
        long = beam_search(model, CONTEXT, beam_size=3, max_length=40, eos=EOS)
        for before, after in zip(short, long, strict=True):
            if not before.ended[0]:
                assert before.gap == math.inf
                continue
            gain = float(after.scores[0] - before.scores[0])
            assert gain <= before.gap
            assert before.proven == (before.gap == 0)
            gained, unproven = gained + (gain > 0), unproven + (not before.proven)
    assert 0 < gained < unproven


@given(seed=st.integers(0, 10_000), length_penalty=st.floats(0, 2), beam_size=st.integers(1, 4))
def test_stopping_early_changes_no_result(seed, length_penalty, beam_size):
    """The same search without its stopping rule, written plainly: every row goes on to `max_length`."""
    model = TinyDecoder(vocab_size=5, seed=seed)
    [result] = beam_search(
        model, CONTEXT[:1], beam_size=beam_size, max_length=8, eos=EOS, length_penalty=length_penalty, n_best=beam_size
    )
    beams, ended = [(0.0, [], model.initial_state(1, CONTEXT[:1]), None)], []
    with torch.no_grad():
        for length in range(1, 9):
            grown = []
            for log_prob, sequence, state, x_prev in beams:
                conditional, after = model.step(x_prev, state)
                for symbol, added in enumerate(conditional.logits[0].tolist()):
                    grown.append((log_prob + added, [*sequence, symbol], after, torch.tensor([symbol])))
            best = sorted(grown, key=lambda prefix: -prefix[0])[:beam_size]
            ended += [(prefix[0] / length**length_penalty, prefix[1][:-1]) for prefix in best if prefix[1][-1] == EOS]
            beams = [prefix for prefix in best if prefix[1][-1] != EOS]
    ended.sort(key=lambda hypothesis: -hypothesis[0])
    answer = [sequence for _, sequence in ended] + [prefix[1] for prefix in beams]
    assert as_lists([result])[0] == answer[:beam_size]


def test_impossible_symbols_are_never_taken():
    model = Table([[1.0, 0, 0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    [result] = beam_search(model, beam_size=9, max_length=4, eos=EOS, n_best=9)
    assert as_lists([result]) == [[[1], [1, 1], [1, 1, 1], [1, 1, 1, 1]]]
    assert result.ended.tolist() == [True, True, True, False]
    assert result.log_probs.isfinite().all()


def test_prefixes_with_no_possible_extension_are_returned_where_nothing_else_is():
    model = Table([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    [result] = beam_search(model, beam_size=3, max_length=9, eos=EOS, no_repeat_ngram=1, n_best=3)
    assert as_lists([result]) == [[[1, 2], [2, 1]]]
    assert not result.ended.any()
    assert not result.proven


def test_an_end_symbol_within_the_prefix_is_no_end_and_forbids_none():
    model = Table([[0.1, 0.9], [0.9, 0.1], [0.5, 0.5]])
    [result] = beam_search(model, beam_size=4, max_length=9, eos=EOS, prefix=torch.tensor([0, 1]), no_repeat_ngram=1)
    assert as_lists([result]) == [[[0, 1]]]
    assert float(result.log_probs[0].exp()) == pytest.approx(0.5 * 0.9 * 0.9)
    assert result.proven


def test_a_prefix_the_model_holds_impossible_is_returned_as_it_is():
    [result] = beam_search(Late(), beam_size=2, max_length=9, eos=EOS, prefix=torch.tensor([2]), length_penalty=1.0)
    assert as_lists([result]) == [[[2]]]
    assert result.log_probs.tolist() == [-math.inf]
    assert not result.proven
