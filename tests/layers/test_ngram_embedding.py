"""Embeddings of n-grams against a table of every n-gram written out, and chunks against the whole."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers._ngrams import NgramEmbedding

SYMBOLS, PADDING = 4, 3


def layer(order: int = 3, buckets: int = 2**14) -> NgramEmbedding:
    torch.manual_seed(0)
    return NgramEmbedding(SYMBOLS, 5, order, buckets=buckets, padding=PADDING).double()


def test_every_ngram_has_a_row_of_its_own_where_the_table_is_large_enough():
    embedding = layer()
    assert [table.num_embeddings for table in embedding.tables] == [SYMBOLS**2, SYMBOLS**3]
    rows = torch.cartesian_prod(*[torch.arange(SYMBOLS)] * 3)  # (64, 3): all triples
    e, _ = embedding(rows[:, 2:], rows[:, :2])
    assert len(e.squeeze(1).unique(dim=0)) == len(rows)


def test_the_sum_is_that_of_the_pair_and_the_triple_that_end_at_each_place():
    embedding = layer()
    x = torch.tensor([[0, 2, 1, 3, 0]])
    e, _ = embedding(x, embedding.initial_state(1))
    past = [PADDING, PADDING, *x[0].tolist()]
    pairs, triples = embedding.tables
    for t in range(x.shape[1]):
        a, b, c = past[t : t + 3]
        written = pairs.weight[b * SYMBOLS + c] + triples.weight[(a * SYMBOLS + b) * SYMBOLS + c]
        assert torch.equal(e[0, t], written)


def test_the_symbols_before_the_window_have_no_influence():
    embedding = layer(buckets=7)
    x = torch.tensor([[0, 1, 2, 0, 1], [2, 1, 2, 0, 1]])
    e, _ = embedding(x, embedding.initial_state(2))
    assert torch.equal(e[0, 3:], e[1, 3:])
    assert not torch.equal(e[0, 2], e[1, 2])


@settings(max_examples=30, deadline=None)
@given(
    x=st.lists(st.integers(0, SYMBOLS - 1), min_size=1, max_size=9),
    cut=st.integers(0, 9),
    order=st.integers(2, 5),
    buckets=st.sampled_from([1, 5, 2**14]),
)
def test_any_chunking_and_single_steps_give_the_same(x, cut, order, buckets):
    embedding, symbols = layer(order, buckets), torch.tensor([x, x[::-1]])
    whole, last = embedding(symbols, embedding.initial_state(2))
    state, parts = embedding.initial_state(2), []
    for chunk in (symbols[:, :cut], symbols[:, cut:]):
        if chunk.shape[1]:
            part, state = embedding(chunk, state)
            parts.append(part)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert torch.equal(state, last)
    state = embedding.initial_state(2)
    for t in range(symbols.shape[1]):
        e, state = embedding.step(symbols[:, t], state)
        assert torch.equal(e, whole[:, t])


def test_a_hash_spreads_ngrams_over_its_rows():
    embedding = NgramEmbedding(200, 1, 3, buckets=4096)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(200, (1, 40_000), generator=generator)
    columns = [x[:, 2:], x[:, 1:-1], x[:, :-2]]
    counts = torch.bincount(embedding._buckets(columns, 4096).flatten(), minlength=4096)
    assert (counts == 0).float().mean() < 0.001  # 40,000 throws into 4,096 boxes leave e^-9.8 of them empty
    assert counts.max() < 40  # the mean is 9.8; above 40 has a chance below 1e-12


def test_dropout_leaves_out_whole_ngrams_in_training_alone_and_keeps_the_mean():
    embedding = NgramEmbedding(SYMBOLS, 5, 2, padding=PADDING, dropout=0.3).double()
    x = torch.ones(1, 20_000, dtype=torch.long)
    state = torch.ones(1, 1, dtype=torch.long)
    drawn, _ = embedding(x, state)
    row = embedding.tables[0].weight[SYMBOLS + 1]
    left_out = (drawn[0] == 0).all(1)
    assert abs(left_out.float().mean() - 0.3) < 0.02  # six standard deviations of 20,000 draws
    # The probability is rounded to 1/65,536, and the scale with it.
    torch.testing.assert_close(drawn[0, ~left_out], (row / 0.7).expand(int((~left_out).sum()), -1), rtol=1e-4, atol=0)
    assert torch.equal(embedding.eval()(x, state)[0][0, 7], row)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"buckets": 0}, "buckets"), ({"dropout": 1.0}, "dropout")],
)
def test_what_is_no_table_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        NgramEmbedding(SYMBOLS, 5, **({"order": 2} | arguments))


def test_its_weights_may_be_given_from_outside():
    layer, x = NgramEmbedding(5, 4, 3, buckets=50, padding=0), torch.randint(5, (2, 6))
    weights = {name: torch.ones_like(weight) for name, weight in layer.named_parameters()}
    given, _ = torch.func.functional_call(layer, weights, (x, layer.initial_state(2)))
    assert torch.equal(given, torch.full((2, 6, 4), 2.0))  # a pair and a triple
