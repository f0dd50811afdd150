"""Kneser-Ney smoothing against its equations over dictionaries, and against enumeration."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import KneserNey
from chainrule.models import NgramLM

LINE = 9  # begins a line in the texts of these tests, as the vocabulary's size does in those of the layer


def by_dictionaries(rows, vocab_size, order, lines):
    """p(v | past) as a function, by the written equations; rows of symbols, one where `lines` is false."""
    rows = [([LINE, *row] if lines else list(row)) for row in rows]
    grams = [Counter() for _ in range(order + 1)]
    for row in rows:
        for end in range(len(row)):
            for k in range(1, order + 1):
                if end - k + 1 >= 0 and row[end] != LINE:
                    grams[k][tuple(row[end - k + 1 : end + 1])] += 1
    while order > 2 and not grams[order]:
        order -= 1
    counts = [None] * (order + 1)
    counts[order] = dict(grams[order])
    for k in range(1, order):
        before = Counter(gram[1:] for gram in grams[k + 1])
        counts[k] = {
            gram: raw if k > 1 and (gram[0] == LINE or not before[gram]) else before[gram]
            for gram, raw in grams[k].items()
        }
    counts[1] = {(v,): Counter(gram[1:] for gram in grams[2])[(v,)] for v in range(vocab_size)}
    terms, kept = [{} for _ in range(order + 1)], [defaultdict(float) for _ in range(order + 1)]
    totals = [Counter() for _ in range(order + 1)]
    for k in range(1, order + 1):
        n = [None, *(max(sum(c == i for c in counts[k].values()), 1) for i in (1, 2, 3, 4))]
        discounts = [i - (i + 1) * n[1] / (n[1] + 2 * n[2]) * n[i + 1] / n[i] for i in (1, 2, 3)]
        discounts = [min(max(d, 0.05), most) for d, most in zip(discounts, (0.95, 1.9, 2.8), strict=True)]
        for gram, count in counts[k].items():
            totals[k][gram[:-1]] += count
        for gram, count in counts[k].items():
            if count:
                terms[k][gram] = (count - discounts[min(count, 3) - 1]) / totals[k][gram[:-1]]
                kept[k][gram[:-1]] += terms[k][gram]

    def probability(past, v):
        past = [LINE, *past] if lines else past
        p = 1 / vocab_size
        for k in range(1, order + 1):
            context = tuple(past[len(past) - k + 1 :])
            if len(past) < k - 1 or context not in totals[k]:
                continue
            p = terms[k].get((*context, v), 0.0) + (1 - kept[k][context]) * p
        return p

    return probability


def flat(rows, vocab_size, lines):
    return torch.tensor([v for row in rows for v in ([vocab_size] if lines else []) + list(row)])


def texts(vocab_size=3):
    row = st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=25)
    return st.lists(row, min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(texts(), st.integers(2, 5), st.booleans(), st.lists(st.integers(0, 2), max_size=8))
def test_probabilities_are_those_of_the_equations(rows, order, lines, past):
    rows = rows if lines else [[v for row in rows for v in row] + [0, 1]]
    ngrams = KneserNey.fit(flat(rows, 3, lines), 3, order, lines=lines, dtype=torch.float64)
    expected = by_dictionaries(rows, 3, order, lines)
    _, contexts = ngrams.read(torch.tensor([past], dtype=torch.long), ngrams.initial_contexts(1))
    found = ngrams.probs(contexts)[0]
    torch.testing.assert_close(found.tolist(), [expected(past, v) for v in range(3)], rtol=1e-10, atol=1e-12)
    assert abs(float(found.sum()) - 1) < 1e-12
    each = ngrams.log_prob(contexts.expand(3, -1), torch.arange(3))
    torch.testing.assert_close(each, found.log(), rtol=1e-12, atol=1e-12)


def random_text(size=4000, vocab_size=6):
    generator = np.random.default_rng(0)
    text = generator.integers(vocab_size, size=size)
    return torch.from_numpy(np.where(np.roll(text, 2) > 2, np.roll(text, 1), text))


def test_equations_are_told_apart():
    """The reference of the test above sees an order less, and raw counts, which plain absolute discounting takes."""
    rows = [random_text(200, 3).tolist()]
    ngrams = KneserNey.fit(flat(rows, 3, False), 3, 3, dtype=torch.float64)
    shorter = KneserNey.fit(flat(rows, 3, False), 3, 2, dtype=torch.float64)
    contexts = [layer.read(torch.tensor([[0, 1]]), layer.initial_contexts(1))[1] for layer in (ngrams, shorter)]
    one, other = ngrams.probs(contexts[0]), shorter.probs(contexts[1])
    assert not torch.allclose(one, other, atol=1e-3)
    counts = torch.bincount(random_text(), minlength=6).double()
    free = KneserNey.fit(random_text(), 6, 2, dtype=torch.float64).unigrams
    assert not torch.allclose(free, counts / counts.sum(), atol=1e-3)


def test_reading_in_chunks_is_reading_at_once():
    text = random_text()
    ngrams = KneserNey.fit(text, 6, 4)
    x = text[:60].view(3, 20)
    whole, after = ngrams.read(x, ngrams.initial_contexts(3))
    contexts = ngrams.initial_contexts(3)
    for t in range(20):
        assert torch.equal(contexts, whole[:, t])
        contexts = ngrams.step(x[:, t], contexts)
    assert torch.equal(contexts, after)
    first, middle = ngrams.read(x[:, :7], ngrams.initial_contexts(3))
    rest, last = ngrams.read(x[:, 7:], middle)
    assert torch.equal(whole, torch.cat([first, rest], 1))
    assert torch.equal(after, last)


def test_a_long_text_needs_wide_keys():
    """Keys that do not fit beside their places in 63 bits are sorted another way: the same counts."""
    from chainrule.layers._kneser_ney import count_ngrams

    text = random_text().numpy()
    usual = list(count_ngrams(text, 6, 3))
    wide = list(count_ngrams(text << 28, 2**31, 3))
    assert [(level.keys % 2**31 >> 28).tolist() for level in wide] == [(level.keys % 6).tolist() for level in usual]
    assert [level.counts.tolist() for level in wide] == [level.counts.tolist() for level in usual]
    assert wide[1].shorter.tolist() == usual[1].shorter.tolist()


def test_symbols_outside_the_vocabulary_were_never_seen():
    ngrams = KneserNey.fit(random_text(), 6, 4)
    after, _ = ngrams.read(torch.tensor([[0, -5, 1], [0, 6, 1]]), ngrams.initial_contexts(2))
    assert torch.equal(after[:, 2], torch.full((2, 3), -1))
    torch.testing.assert_close(ngrams.probs(after[:, 2]), ngrams.unigrams.expand(2, -1))


@pytest.mark.parametrize("symbol", [-1, 6])
def test_no_symbol_outside_the_vocabulary_has_a_probability(symbol):
    """-1 once had the probability of the last symbol."""
    ngrams = KneserNey.fit(random_text(), 6, 4)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        ngrams.log_prob(ngrams.initial_contexts(1), torch.tensor([symbol]))


def test_shares_that_are_rounded_up_leave_nothing_negative():
    tables = KneserNey.fit(random_text(), 7, 2).tables()  # the last symbol is never there
    first = tables["keys"] < 7
    over = tables["terms"] / tables["terms"][first].sum() * 1.0005
    ngrams = KneserNey.from_tables(tables | {"terms": torch.where(first, over, tables["terms"])})
    p = ngrams.probs(ngrams.step(torch.tensor([0]), ngrams.initial_contexts(1)))
    assert p[0, 6] == 0


def test_other_types_of_symbols():
    ngrams = KneserNey.fit(random_text(), 6, 4)
    x = random_text()[:20].view(2, 10)
    contexts, after = ngrams.read(x.to(torch.uint8), ngrams.initial_contexts(2))
    assert torch.equal(contexts, ngrams.read(x, ngrams.initial_contexts(2))[0])
    assert torch.equal(ngrams.log_prob(contexts, x.to(torch.uint8)), ngrams.log_prob(contexts, x))
    assert torch.equal(ngrams.step(x[:, 0].to(torch.uint8), after), ngrams.step(x[:, 0], after))
    assert int(ngrams.step(torch.tensor([200, 7], dtype=torch.uint8), after).max()) == -1
    with pytest.raises(ValueError, match="integers"):
        ngrams.read(x.float(), ngrams.initial_contexts(2))


def test_sums_have_the_same_bits_with_any_number_of_threads():
    """Of so many numbers torch adds up some in parallel, in an order that changes from call to call."""
    text = torch.from_numpy(np.random.default_rng(0).integers(20, size=200_000))
    ngrams = KneserNey.fit(text, 20, 5)
    contexts, _ = ngrams.read(text[:4000].view(1, -1), ngrams.initial_contexts(1))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        found = [ngrams.probs(contexts) for _ in range(10)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, ngrams.probs(contexts)) for one in found)


def test_rows_of_different_depth():
    """Contexts of one call that were seen to different lengths, as many as none has, give what each gives alone."""
    ngrams = KneserNey.fit(random_text(), 6, 6)
    x = random_text(7000)[-60:].view(3, 20)  # of which the counts know parts
    contexts, _ = ngrams.read(x, ngrams.initial_contexts(3))
    depths = (contexts >= 0).sum(-1)
    assert int(depths[:, 2].max()) < 5
    assert len(depths.unique()) > 2
    alone = torch.stack([ngrams.probs(context) for context in contexts.flatten(0, 1)])
    torch.testing.assert_close(ngrams.probs(contexts).flatten(0, 1), alone)
    torch.testing.assert_close(ngrams.probs(contexts[:, 2]), alone.view(3, 20, 6)[:, 2])
    assert ngrams.probs(contexts[:0]).shape == (0, 20, 6)


def test_the_scored_occurrence_can_be_left_out():
    """In 0 1 0 1 2 2 the pair 2 2 occurs once and alone after 2, 1 2 occurs once beside 1 0, and 0 1 twice."""
    x = torch.tensor([[0, 1, 0, 1, 2, 2]])
    ngrams = KneserNey.fit(x[0], 3, 2)
    contexts = ngrams.read(x, ngrams.initial_contexts(1))[0]
    plain, left_out = ngrams.log_prob(contexts, x)[0].exp(), ngrams.leaving_one_out().log_prob(contexts, x)[0].exp()
    of_two = float(ngrams.terms[ngrams.keys.tolist().index(1 * 3 + 2)])
    assert float(left_out[5]) == pytest.approx(float(ngrams.unigrams[2]))
    assert float(left_out[4]) == pytest.approx(float(plain[4]) - of_two)
    assert float(left_out[3]) == float(plain[3])
    others = ngrams.leaving_one_out().other_contexts(contexts, x)[0]
    assert (others >= 0).sum(-1).tolist() == [1, 1, 1, 1, 1, 0]  # the last 2 is alone after its 2
    assert torch.equal(ngrams.log_prob(contexts, x)[0].exp(), plain)  # the tables themselves stay as they are


def test_contexts_that_were_read_spare_look_ups():
    ngrams, x = KneserNey.fit(random_text(), 6, 5), random_text(7000)[-60:].view(3, 20)
    before, after = ngrams.read(x, ngrams.initial_contexts(3))
    following = torch.cat([before[:, 1:], after.unsqueeze(1)], 1)
    assert torch.equal(ngrams.log_prob(before, x, following), ngrams.log_prob(before, x))
    head, changed = NgramLM(ngrams)(x), x.clone()
    assert torch.equal(head.log_prob(x), head.log_prob(changed))
    x[0, 3] = changed[0, 3] = 5 - x[0, 3]
    assert torch.equal(head.log_prob(x), head.log_prob(changed))  # not those of the symbols that were read


def test_orders_that_need_too_many_ngrams_are_left_out():
    text = random_text()
    size = len(KneserNey.fit(text, 6, 4).keys)
    assert KneserNey.fit(text, 6, 4, most=size).order == 4
    assert KneserNey.fit(text, 6, 4, most=size - 1).order == 3
    assert KneserNey.fit(text, 6, 4, most=1).order == 2  # pairs are always there
    different = len(text.unfold(0, 3, 1).unique(dim=0)) / len(text)
    assert KneserNey.fit(text, 6, 3, most_different=different).order == 3
    assert KneserNey.fit(text, 6, 4, most_different=different - 1e-4).order == 2
    assert KneserNey.fit(torch.tensor([0, 1, 0]), 6, 9).order == 3  # nor are there any longer ones


def test_tables_are_kept_and_checked():
    ngrams = KneserNey.fit(random_text(), 6, 3)
    tables = ngrams.tables()
    again = KneserNey.from_tables(tables)
    contexts = ngrams.read(random_text()[:50].view(1, -1), ngrams.initial_contexts(1))[0]
    assert torch.equal(ngrams.probs(contexts), again.probs(contexts))
    assert not ngrams.state_dict()
    unigrams, keys, terms, once = tables.values()
    chain = (torch.arange(40) + 6) * 6  # each n-gram is the context of the next
    wrong = [
        ({"keys": keys.flip(0)}, "increasing"),
        ({"keys": keys.int()}, "integers"),
        ({"keys": keys.view(2, -1), "terms": terms.view(2, -1)}, "integers"),
        ({"keys": keys[:0], "terms": terms[:0]}, "integers"),
        ({"keys": keys - 1}, "contexts"),
        ({"keys": keys + 7 * 6}, "contexts"),
        ({"keys": chain, "terms": torch.ones(40)}, "at most 32"),
        ({"terms": terms[:-1]}, "terms"),
        ({"terms": terms + 1}, "terms"),
        ({"terms": terms * torch.nan}, "terms"),
        ({"terms": terms.long()}, "terms"),
        ({"terms": terms.double()}, "terms"),
        ({"terms": terms.half(), "unigrams": unigrams.half()}, "unigrams"),
        ({"terms": terms * 0 + 1}, "after one context"),
        ({"unigrams": unigrams * 2}, "add up"),
        ({"unigrams": unigrams.view(2, 3)}, "unigrams"),
        ({"once": once[:-1]}, "once"),
        ({"once": once.float()}, "once"),
        ({"more": keys}, "expected unigrams, keys, terms, once"),
    ]
    for change, expected in wrong:
        with pytest.raises(ValueError, match=expected):
            KneserNey.from_tables(tables | change)
    with pytest.raises(ValueError, match="got keys, unigrams"):
        KneserNey.from_tables({"unigrams": unigrams, "keys": keys})


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ([0, 1], {"order": 1}, "order"),
        ([0, 1], {"order": 33}, "order"),
        ([0], {}, "two or more"),
        ([0, 3], {}, "in .0, 2"),
        ([0, -1], {}, "in .0, 2"),
        ([3, 3], {"lines": True}, "lines of"),
        ([0, 1], {"vocab_size": 0}, "vocab_size"),
    ],
)
def test_what_cannot_be_counted(text, options, expected):
    with pytest.raises(ValueError, match=expected):
        KneserNey.fit(torch.tensor(text), **{"vocab_size": 3, "order": 2} | options)
