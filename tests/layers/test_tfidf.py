"""Logistic regression with TF-IDF weights: its features in plain Python, and the one minimum of its loss."""

import math
from collections import Counter
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import _tfidf as tfidf
from chainrule.layers._tfidf import TfidfScores

V, WORDS = 7, 4  # symbols 4, 5 and 6 are parts
BAGS = st.lists(
    st.tuples(st.integers(0, WORDS - 1), st.lists(st.integers(WORDS, V - 1), max_size=2, unique=True)), max_size=5
)


def batch(texts):
    width = max(map(len, texts), default=0)
    x = torch.full((len(texts), width, 3), -1)
    for row, text in enumerate(texts):
        for place, (word, parts) in enumerate(text):
            x[row, place] = torch.tensor([word, *parts, *[-1] * (2 - len(parts))])
    return x, torch.tensor([len(text) for text in texts])


def plain_features(texts, text, order):
    """The equation, without hashes: each block of a text with its own length of 1."""

    def blocks(text):
        words = [word for word, _ in text]
        marked = ["<"] * (order - 1) + words + [">"] if words and order > 1 else []
        longer = [
            tuple(marked[end - n + 1 : end + 1]) for n in range(2, order + 1) for end in range(order - 1, len(marked))
        ]
        return [*words, *longer], [part for _, parts in text for part in parts]

    found = []
    for number, block in enumerate(blocks(text)):
        others = [blocks(other)[number] for other in texts]
        values = {}
        for feature, count in Counter(block).items():
            holding = sum(feature in other for other in others)
            if holding:
                values[feature] = (1 + math.log(count)) * (1 + math.log((1 + len(texts)) / (1 + holding)))
        size = math.sqrt(sum(value**2 for value in values.values())) or 1
        found.append(sorted(value / size for value in values.values()))
    return sorted(found[0] + found[1])


@given(st.lists(BAGS, min_size=1, max_size=4), BAGS, st.integers(1, 2))
@settings(max_examples=12, deadline=None)
def test_features_are_those_of_the_equation(texts, unseen, order):
    model = TfidfScores(V, 2, order, elements=WORDS, buckets=1 << 12).double()
    labels = torch.arange(len(texts)) % 2
    with mock.patch.object(TfidfScores, "_minimise"):
        model.fit(lambda: [(*batch(texts), labels)], lambda: [(*batch(texts), labels)])
    for text in [*texts, unseen]:
        rows, values = model.features(*batch([text]))
        assert rows[values > 0].unique().numel() == (values > 0).sum()
        assert sorted(values[values > 0].tolist()) == pytest.approx(plain_features(texts, text, order), abs=1e-12)


def labelled(count, *, several=False):
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(WORDS, (count, 6, 1), generator=generator)
    x = torch.cat([x, torch.randint(WORDS, V, (count, 6, 2), generator=generator)], 2)
    lengths = torch.randint(1, 7, (count,), generator=generator)
    told = (x[:, 0, 0] + torch.randint(2, (count,), generator=generator)) % 3
    return x, lengths, torch.stack([told == 0, told > 0, x[:, 0, 1] == 4], 1).long() if several else told


@pytest.mark.parametrize("several", [False, True])
def test_fitted_weights_have_no_slope_and_the_strength_has_the_least_loss_of_held_out_texts(several, monkeypatch):
    strengths_tried = (1.0, 10.0, 100.0)
    monkeypatch.setattr(tfidf, "_STEPS", 400)
    train, held_out = labelled(60, several=several), labelled(150, several=several)
    losses = {}
    for strengths in (strengths_tried, *((strength,) for strength in strengths_tried)):
        monkeypatch.setattr(TfidfScores._minimise, "__defaults__", (strengths,))
        model = TfidfScores(V, 3, 2, elements=WORDS, several=several, buckets=1 << 12).double()
        model.fit(lambda: [train], lambda: [held_out])

        def loss(rows, weight=None, bias=None, model=model):
            places, values = model.features(*rows[:2])
            weight, bias = (model.weight, model.bias) if weight is None else (weight, bias)
            scores = torch.zeros(len(places), model.nothing + 1).double().scatter_add(1, places, values) @ weight + bias
            if several:
                return torch.nn.functional.binary_cross_entropy_with_logits(scores, rows[2].double()) * 3
            return torch.nn.functional.cross_entropy(scores, rows[2])

        losses[strengths] = float(loss(held_out))
        if len(strengths) == 1:
            weight, bias = model.weight.clone().requires_grad_(), model.bias.clone().requires_grad_()
            total = loss(train, weight, bias) + weight.square().sum() / (2 * strengths[0] * 60)
            slopes = torch.autograd.grad(total, [weight, bias])
            slopes[0][model.idf == 0] = 0
            assert max(float(slope.abs().max()) for slope in slopes) < 1e-5  # L-BFGS ends at steps of 1e-9
    # The weights of one strength after another differ by what L-BFGS leaves.
    assert losses[strengths_tried] == pytest.approx(min(losses.values()), abs=1e-5)


def test_padding_and_other_rows_do_not_matter():
    train = labelled(40)
    model = TfidfScores(V, 3, 2, elements=WORDS, buckets=1 << 12).double()
    model.fit(lambda: [train], lambda: [train])
    x, lengths, _ = labelled(9)
    past = torch.arange(6) >= lengths.unsqueeze(1)
    together = model(x.masked_fill(past.unsqueeze(2), 77), lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(x[:1, :0])[0], model.bias)


def test_of_very_many_texts_every_second_one_is_fitted(monkeypatch):
    train = labelled(40)
    full = TfidfScores(V, 3, 1, elements=WORDS, buckets=1 << 12).double()
    full.fit(lambda: [train], lambda: [train])
    monkeypatch.setattr(tfidf, "_MOST_ENTRIES", int((full.features(*train[:2])[1] > 0).sum()) - 1)
    half = TfidfScores(V, 3, 1, elements=WORDS, buckets=1 << 12).double()
    half.fit(lambda: [train], lambda: [train])
    kept = TfidfScores(V, 3, 1, elements=WORDS, buckets=1 << 12).double()
    kept.idf.copy_(half.idf)
    some = kept._matrix([tuple(part[::2] for part in train)], 1)
    kept._minimise(some, some)
    torch.testing.assert_close(half.idf, full.idf)
    torch.testing.assert_close(half.weight, kept.weight)
    assert not torch.allclose(half.weight, full.weight)
