"""Beam search finds what enumeration finds, and stops only when nothing that lives can change the result."""

import sys

import pytest
import torch
from decoded_models import CONTEXT, EOS, Table, TinyDecoder, as_lists, enumerated, holds_an_ngram_twice
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.decoding import beam_search
from chainrule.decoding._decoded import Ended
from chainrule.state import map_state

WIDE = 4**5  # no tree here has more leaves


def assert_same(result, expected):
    """The n best of a search are the first n of an enumeration."""
    assert as_lists([result])[0] == [sequence for _, _, sequence in expected]
    torch.testing.assert_close(
        result.scores, torch.tensor([score for score, _, _ in expected], dtype=torch.float64), rtol=1e-12, atol=1e-12
    )
    log_probs = torch.tensor([log_prob for _, log_prob, _ in expected], dtype=torch.float64)
    torch.testing.assert_close(result.log_probs, log_probs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_as_wide_as_the_tree_equals_enumeration(seed, length_penalty):
    model = TinyDecoder(seed=seed)
    results = beam_search(
        model, CONTEXT, beam_size=WIDE, max_length=5, eos=EOS, length_penalty=length_penalty, n_best=5
    )
    for row, result in enumerate(results):
        assert_same(result, enumerated(model, CONTEXT[row : row + 1], 5, EOS, length_penalty)[:5])
        assert result.ended.all()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    length_penalty=st.floats(0, 3),
    min_length=st.integers(0, 3),
    max_length=st.integers(4, 5),
    no_repeat_ngram=st.sampled_from([None, 1, 2, 3]),
    prefix=st.lists(st.integers(1, 2), max_size=2),
)
def test_limits_repetitions_and_prefixes_equal_enumeration(
    seed, length_penalty, min_length, max_length, no_repeat_ngram, prefix
):
    model = TinyDecoder(vocab_size=3, seed=seed)
    options = {"length_penalty": length_penalty, "min_length": min_length, "no_repeat_ngram": no_repeat_ngram}
    [result] = beam_search(
        model,
        CONTEXT[:1],
        beam_size=WIDE,
        max_length=max_length,
        eos=EOS,
        n_best=3,
        prefix=torch.tensor(prefix),
        **options,
    )
    if no_repeat_ngram is not None and holds_an_ngram_twice(prefix, no_repeat_ngram):
        return  # what was given is not the search's to forbid
    expected = enumerated(model, CONTEXT[:1], max_length, EOS, prefix=prefix, **options)[:3]
    if not expected:  # nothing can end: some prefix is returned, and said to be no end
        assert len(result.sequences[0]) >= len(prefix)
        assert not result.ended.any()
        return
    ended = int(result.ended.sum())
    assert ended == len(expected)
    assert as_lists([result])[0][:ended] == [sequence for _, _, sequence in expected]


@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_log_probs_are_those_of_the_model_and_ranked_by_score(beam_size, length_penalty):
    model = TinyDecoder()
    for row, result in enumerate(
        beam_search(
            model, CONTEXT, beam_size=beam_size, max_length=6, eos=EOS, length_penalty=length_penalty, n_best=beam_size
        )
    ):
        assert len(set(map(tuple, as_lists([result])[0]))) == len(result.sequences) == beam_size
        for sequence, log_prob, score, ended in zip(
            result.sequences, result.log_probs, result.scores, result.ended, strict=True
        ):
            whole = torch.cat([sequence, torch.tensor([EOS])]) if ended else sequence
            expected = model.log_prob(whole.unsqueeze(0), CONTEXT[row : row + 1])[0]
            torch.testing.assert_close(log_prob, expected.detach(), rtol=1e-12, atol=1e-12)
            assert float(score) == pytest.approx(float(log_prob) / len(whole) ** length_penalty)
        assert result.ended.tolist() == sorted(result.ended.tolist(), reverse=True)
        for part in (result.scores[result.ended], result.scores[~result.ended]):
            assert part.tolist() == sorted(part.tolist(), reverse=True)


@pytest.mark.parametrize("length_penalty", [0.0, 0.7])
@pytest.mark.parametrize("no_repeat_ngram", [None, 2])
def test_a_batch_gives_each_row_what_it_gets_alone(length_penalty, no_repeat_ngram):
    model = TinyDecoder(vocab_size=8)
    options = {"length_penalty": length_penalty, "no_repeat_ngram": no_repeat_ngram, "n_best": 3}
    together = beam_search(model, CONTEXT, beam_size=4, max_length=12, eos=EOS, **options)
    for row, result in enumerate(together):
        [alone] = beam_search(model, CONTEXT[row : row + 1], beam_size=4, max_length=12, eos=EOS, **options)
        assert as_lists([alone]) == as_lists([result])
        torch.testing.assert_close(alone.log_probs, result.log_probs, rtol=1e-13, atol=1e-13)
        assert alone.proven == result.proven
        assert alone.gap == pytest.approx(result.gap, abs=1e-12)
    lengths = {len(sequence) for result in together for sequence in result.sequences}
    assert len(lengths) > 2  # rows that end at different steps


def test_a_state_that_is_not_reordered_with_the_beams_is_noticed(monkeypatch):
    model, expected = TinyDecoder(), []
    for row in range(len(CONTEXT)):
        expected.append(enumerated(model, CONTEXT[row : row + 1], 5, EOS)[0])

    def found():
        return [
            (as_lists([result])[0][0], round(float(result.log_probs[0]), 9))
            for result in beam_search(model, CONTEXT, beam_size=16, max_length=5, eos=EOS)
        ]

    answers = [(sequence, round(log_prob, 9)) for _, log_prob, sequence in expected]
    assert found() == answers

    def misordered(state, parents):  # as many prefixes, not the right ones
        return map_state(lambda leaf: leaf[torch.arange(len(parents)) % len(leaf)], state)

    monkeypatch.setattr(sys.modules["chainrule.decoding._beam_search"], "select", misordered)
    assert found() != answers


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("n_best", [1, 3])
def test_prefixes_that_cannot_win_take_no_step_and_change_nothing(length_penalty, n_best, monkeypatch):
    model = TinyDecoder(vocab_size=8)
    options = {"beam_size": 5, "max_length": 12, "eos": EOS, "length_penalty": length_penalty, "n_best": n_best}
    results = beam_search(model, CONTEXT, **options)
    spent, model.stepped = sum(model.stepped), []
    # No bound: what has ended is not known to the search before its last step.
    monkeypatch.setattr(Ended, "worst", property(lambda self: -torch.inf))
    exhaustive = beam_search(model, CONTEXT, **options)
    assert as_lists(results) == as_lists(exhaustive)
    for result, other in zip(results, exhaustive, strict=True):
        torch.testing.assert_close(result.log_probs, other.log_probs, rtol=1e-13, atol=1e-13)
    assert spent < sum(model.stepped)


def test_equals_are_ordered_by_prefix_and_then_by_symbol():
    model = Table([[1.0, 0.0, 0.0, 0.0], *[[0.25] * 4 for _ in range(4)]])
    [result] = beam_search(model, beam_size=3, max_length=2, eos=3, n_best=3, prefix=torch.tensor([1]))
    assert as_lists([result]) == [[[1, 0], [1, 1], [1, 2]]]
    [wide] = beam_search(model, beam_size=64, max_length=3, eos=0, n_best=64)
    expected = enumerated(model, None, 3, 0)  # listed by length, then by symbol; the sort is stable
    assert as_lists([wide])[0][: len(expected)] == [sequence for _, _, sequence in expected]


def test_rows_come_from_the_context_or_the_prefix():
    model = TinyDecoder()
    options = {"beam_size": 2, "max_length": 5, "eos": EOS}
    prefixes = torch.tensor([[1, 2], [3, 3], [2, 1]])
    assert len(beam_search(model, **options)) == 1
    assert beam_search(model, CONTEXT[:0], **options) == []
    for context, prefix in (
        (None, prefixes),
        (CONTEXT[:1], prefixes),
        (CONTEXT[:3], prefixes[0]),
        (CONTEXT[:3], prefixes[:1]),
    ):
        results = beam_search(model, context, prefix=prefix, **options)
        for row, result in enumerate(results):
            one = None if context is None else context[row % len(context)].unsqueeze(0)
            own = prefix if prefix.dim() == 1 else prefix[row % len(prefix)]
            assert as_lists([result]) == as_lists(beam_search(model, one, prefix=own, **options))
            assert result.sequences[0][:2].tolist() == own.tolist()
        assert len(results) == 3


def test_nothing_is_kept_of_the_search_for_gradients_nor_on_the_model():
    model = TinyDecoder()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    [result] = beam_search(model, CONTEXT[:1], beam_size=3, max_length=6, eos=EOS)
    assert not result.log_probs.requires_grad
    assert torch.is_grad_enabled()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_penalty": 400, "max_length": 100}, "length_penalty: expected max_length .* to be finite, got 400"),
        ({"prefix": torch.tensor(1)}, r"prefix: expected integers \(P,\) or \(B, P\), got \(\) of"),
        ({"prefix": torch.tensor([0.5])}, "prefix: expected integers"),
    ],
)
def test_arguments_that_cannot_be_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        beam_search(TinyDecoder(), CONTEXT, **{"beam_size": 2, "max_length": 5, "eos": EOS} | options)


def test_a_large_whole_penalty_is_the_same_number():
    options = {"beam_size": 2, "max_length": 60, "eos": EOS}
    whole, real = (beam_search(TinyDecoder(), CONTEXT[:1], length_penalty=power, **options) for power in (150, 150.0))
    assert as_lists(whole) == as_lists(real)
