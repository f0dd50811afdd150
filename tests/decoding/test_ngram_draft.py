"""Smoothed n-grams are a distribution, and follow the counts."""

import numpy as np
import pytest
import torch

from chainrule.decoding import NgramDraft, ngram_draft
from chainrule.testing import check_causality, check_step_equals_forward, check_total_probability

TEXT = torch.randint(3, (200,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("order", [1, 2, 4])
def test_the_model_keeps_the_contract(order):
    model, x = NgramDraft(TEXT, 3, order), TEXT[:12].view(2, 6)
    assert check_total_probability(model, x[:, :3]).ok
    assert check_step_equals_forward(model, x).ok
    assert check_causality(model, x).ok


def test_each_order_is_mixed_with_the_one_below():
    text = [0, 1, 2, 0, 1, 1, 0, 1]
    q = NgramDraft(text, 3, order=3)(torch.tensor([[0, 1, 0]])).probs[0, 2]
    single = np.array([3 + 1, 4 + 1, 1 + 1]) / (8 + 3)
    pair = (np.array([1, 1, 1]) + 3 * single) / (3 + 3)  # after 1 came 2, 1 and 0
    triple = (np.array([0, 1, 1]) + 2 * pair) / (2 + 2)  # after 0 1 came 2 and 1
    np.testing.assert_allclose(q, triple, rtol=1e-6)


def test_an_unseen_context_falls_back_to_a_shorter_one():
    model = NgramDraft([0, 1, 2, 0, 1], 4, order=3)
    probs = model(torch.tensor([[3, 0, 0], [2, 0, 0]])).probs[:, 2]
    assert probs[0, 1] > 0.4
    assert (probs > 0).all()
    assert NgramDraft([], 4)(torch.zeros(1, 2, dtype=torch.long)).probs.unique().tolist() == [0.25]


def test_remembered_distributions_hold_so_many_numbers(monkeypatch):
    monkeypatch.setattr(ngram_draft, "_NUMBERS", 35)
    model, x = NgramDraft(TEXT, 10, 3), TEXT[:12].view(2, 6)
    usual = model(x).logits
    assert len(model._known) == 3
    assert torch.equal(model(x).logits, usual)
    assert ngram_draft._CONTEXTS * 3 < 35 << 20


def test_a_wide_vocabulary_has_shorter_ngrams():
    assert NgramDraft(TEXT, 65).order == 6
    assert NgramDraft(TEXT, 50_000).order == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], 0), "vocab_size: expected an integer >= 1, got 0"),
        (([0, 3], 3), "symbols: expected integers in .0, 3., got 0 to 3"),
        (([0], 50_000, 5), "order: expected 1 to 4 for 50000 symbols, or None, got 5"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        NgramDraft(*arguments)
