"""Scores of n-grams: the sum over a text's n-grams, and naive Bayes as the equation has it."""

import inspect
import math
import runpy
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import _ngrams as ngram_scores
from chainrule.layers._ngrams import NgramScores

EDGE = 4
TEXTS = [[0, 1, 1, 2], [2, 3], [], [0, 1], [1, 3], [1, 2, 3, 0, 2, 3], [0, 0], [2, 3, 3], [3, 1], [0, 1, 0], [1, 1, 3]]
LABELS = [0, 1, 0, 0, 2, 1, 0, 1, 2, 2, 2]


def batch(texts: list[list[int]], labels: list[int], *, garbage: int = -1):
    width = max(map(len, texts), default=0)
    padded = [text + [garbage] * (width - len(text)) for text in texts]
    x = torch.tensor(padded, dtype=torch.long).view(len(texts), width)
    return x, torch.tensor([len(text) for text in texts]), torch.tensor(labels)


def ngrams(text: list[int], order: int) -> list[tuple[int, ...]]:
    """Symbols, and the n-grams that end at each of them and at the edge after them."""
    found: list[tuple[int, ...]] = [(symbol,) for symbol in text]
    if text:
        marked = [EDGE] * (order - 1) + text + [EDGE]
        for n in range(2, order + 1):
            found += [tuple(marked[end - n + 1 : end + 1]) for end in range(order - 1, len(marked))]
    return found


def naive_bayes(order: int, prior: list[float]):
    """The equation in plain Python: centred ratios of each n-gram, λ, and the likelihood of λ."""
    counts, classes = Counter(), len(prior)
    for text, label in zip(TEXTS, LABELS, strict=True):
        counts.update((ngram, label) for ngram in set(ngrams(text, order)))
    kinds = {ngram for ngram, _ in counts}
    total = [1 + sum(counts[ngram, label] for ngram in kinds) for label in range(classes)]
    added = [classes * part / sum(total) for part in total]

    def shares(ngram, left_out=None):
        found = [max(counts[ngram, label] - (label == left_out), 0) for label in range(classes)]
        return [math.log(n + plus) - math.log(part) for n, plus, part in zip(found, added, total, strict=True)]

    def nats(scale: float) -> float:
        lost = 0.0
        for text, label in zip(TEXTS, LABELS, strict=True):
            scores = [math.log(share) for share in prior]
            for ngram in ngrams(text, order):
                scores = [
                    score + scale * part for score, part in zip(scores, shares(ngram, left_out=label), strict=True)
                ]
            lost += math.log(sum(map(math.exp, scores))) - scores[label]
        return lost

    scale = min(ngram_scores._SCALES, key=nats)
    ratios = {
        ngram: [scale * (part - sum(found) / classes) for part in found] for ngram in kinds if (found := shares(ngram))
    }
    return ratios, scale


@pytest.mark.parametrize("order", [1, 2, 3])
def test_fitted_scores_are_naive_bayes(order: int) -> None:
    prior = [0.5, 0.2, 0.3]
    model = NgramScores(EDGE, 3, order).double()
    model.fit(lambda: [batch(TEXTS[:3], LABELS[:3]), batch(TEXTS[3:], LABELS[3:], garbage=77)], torch.tensor(prior))
    ratios, scale = naive_bayes(order, prior)
    assert 1 / 256 < scale < 1  # inside the range that is searched
    for text in [*TEXTS, [1, 0, 2], [3, 3]]:
        wanted = [math.log(share) for share in prior]
        for ngram in ngrams(text, order):
            wanted = [score + part for score, part in zip(wanted, ratios.get(ngram, [0.0] * 3), strict=True)]
        x, lengths, _ = batch([text], [0])
        torch.testing.assert_close(model(x, lengths)[0], torch.tensor(wanted).double(), rtol=0, atol=1e-6)


def test_a_scale_from_texts_that_count_themselves_would_be_too_sure() -> None:
    """Random labels: left out of the counts, texts show that n-grams tell nothing."""
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randint(50, (200, 12), generator=generator), torch.randint(2, (200,), generator=generator)
    model = NgramScores(50, 2, 2)
    model.fit(lambda: [(x, None, labels)])
    shares = model(x).softmax(1).max(1).values
    assert shares.mean() < 0.6


@given(st.lists(st.lists(st.integers(0, EDGE - 1), max_size=6), min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_padding_and_other_rows_do_not_matter(texts: list[list[int]], order: int) -> None:
    torch.manual_seed(0)
    model = NgramScores(EDGE, 2, order).double()
    torch.nn.init.normal_(model.table.weight.data[:-1])
    x, lengths, _ = batch(texts, [0] * len(texts))
    together = model(x, lengths)
    for row, text in enumerate(texts):
        wanted = model.bias + model.table(model.rows(torch.tensor([text]).view(1, -1).long())[0]).sum(0)
        torch.testing.assert_close(together[row], wanted, rtol=0, atol=1e-12)
    if order > 1:
        rows = model.rows(x, lengths)
        assert [int((row != model.nothing).sum()) for row in rows] == [len(ngrams(text, order)) for text in texts]


def test_an_n_gram_tells_the_order_of_symbols_and_where_a_text_ends() -> None:
    model = NgramScores(EDGE, 2, 2)
    different = {tuple(sorted(model.rows(torch.tensor([text])).tolist()[0])) for text in ([0, 1], [1, 0], [0, 0, 1])}
    assert len(different) == 3


def test_many_symbols_and_labels_share_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_scores, "_MOST_WEIGHTS", 40)
    model = NgramScores(1000, 4, 3)
    assert model.table.weight.shape == (21, 4)
    rows = model.rows(torch.arange(1000).view(10, 100))
    assert set(rows.unique().tolist()) == {*range(model.nothing + 1)}
    assert (rows == model.nothing).sum() == 10  # one a row
    assert model(torch.arange(1000).view(10, 100)).shape == (10, 4)


def test_the_table_is_trained_and_nothing_stays_zero() -> None:
    model = NgramScores(EDGE, 2, 2)
    x, lengths, labels = batch(TEXTS, [label % 2 for label in LABELS])
    torch.nn.functional.cross_entropy(model(x, lengths), labels).backward()
    weight = model.table.weight
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0
    assert not weight.grad[model.nothing].any()


@pytest.mark.parametrize("symbol", [EDGE, 100])
def test_symbols_outside_the_vocabulary_are_refused(symbol: int) -> None:
    with pytest.raises(ValueError, match=rf"x: expected symbols in \[0, 4\), got {symbol}"):
        NgramScores(EDGE, 2, 2)(torch.tensor([[0, symbol]]))


@pytest.mark.parametrize("sizes", [{"order": 0}, {"num_symbols": 0}, {"num_classes": 0}, {"buckets": 0}])
def test_sizes_below_one_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}: expected an integer >= 1"):
        NgramScores(**({"num_symbols": 3, "num_classes": 2, "order": 2} | sizes))


def test_bytes_are_read_as_integers() -> None:
    model, (x, lengths, _) = NgramScores(EDGE, 2, 2), batch(TEXTS, LABELS, garbage=0)
    assert torch.equal(model.rows(x.to(torch.uint8), lengths), model.rows(x, lengths))


def test_its_module_is_imported_while_the_default_device_is_meta() -> None:
    """A run counts the weights of its model there, and may be the first to import it."""
    with torch.device("meta"):
        runpy.run_path(inspect.getfile(NgramScores))
