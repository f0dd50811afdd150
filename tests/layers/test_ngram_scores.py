"""Scores of n-grams and of templates: what each reads, in plain Python, and naive Bayes as the equation has it."""

import inspect
import math
import runpy
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import NgramScores, TemplateScores
from chainrule.layers import _ngrams as ngram_scores
from chainrule.layers import _word_forms as template_scores

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


ALPHABET = "abcABC19."
NUMBERS = {character: number for number, character in enumerate(ALPHABET, 1)}
SENTENCES = [["aB", "b", "Cab.", "1a"], ["c"], [], ["abcabca", "b", "B9"]]
OUTSIDE = "<edge>"


def spelled(sentences, *, garbage=0):
    time, width = max(map(len, sentences), default=0) + 1, 8
    characters = torch.full((len(sentences), time, width), garbage)
    for row, sentence in enumerate(sentences):
        for place, word in enumerate(sentence):
            characters[row, place] = torch.tensor([NUMBERS[c] for c in word] + [0] * (width - len(word)))
    return characters, torch.tensor(list(map(len, sentences)))


def shape(word):
    return "".join("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word[:6])


def plain(sentence, t):
    """What each template reads of a word, in order; None where it reads nothing."""

    def at(place, part=lambda word: word):
        return part(sentence[place].lower()) if 0 <= place < len(sentence) else OUTSIDE

    def form(place):
        return shape(sentence[place]) if 0 <= place < len(sentence) else OUTSIDE

    def ending(size):
        return lambda word: word[-size:]

    word, own = sentence[t], sentence[t].lower()
    two, three = ending(2), ending(3)
    read = [
        word, own, at(t - 1), at(t + 1), at(t - 2), at(t + 2), (at(t - 1), own), (own, at(t + 1)),
        (at(t - 1), at(t + 1)), (at(t - 2), at(t - 1)), (at(t + 1), at(t + 2)), shape(word), (form(t - 1), shape(word)),
        (shape(word), form(t + 1)), (t == 0, shape(word)), at(t - 1, three), at(t + 1, three),
        (at(t - 1, three), three(own)), (three(own), at(t + 1, three)), (at(t - 1, two), two(own), at(t + 1, two)),
        (at(t - 1), shape(word)),
    ]  # fmt: skip
    read += [own[-size:] if len(own) >= size else None for size in range(1, 6)]
    return read + [own[:size] if len(own) >= size else None for size in range(1, 5)]


def test_each_template_reads_what_it_says():
    """Two words share the row of a template if, and only if, it reads the same of both."""
    scores = TemplateScores(ALPHABET, 3)
    features = scores.rows(*spelled(SENTENCES))
    words = [(row, t) for row, sentence in enumerate(SENTENCES) for t in range(len(sentence))]
    read = {place: plain(SENTENCES[place[0]], place[1]) for place in words}
    assert features.shape[2] == len(read[0, 0])
    for template in range(features.shape[2]):
        for one in words:
            row = int(features[(*one, template)])
            assert (row == scores.nothing) == (read[one][template] is None)
            for other in words:
                same = row == int(features[(*other, template)])
                assert same == (read[one][template] == read[other][template]), (template, one, other)
    everything = {int(row) for row in features.unique()} - {scores.nothing}
    assert len(everything) == len(
        {(n, str(part)) for parts in read.values() for n, part in enumerate(parts) if part is not None}
    )


def test_nothing_past_the_ends_is_read():
    scores = TemplateScores(ALPHABET, 3).double()
    torch.nn.init.normal_(scores.table[:-1])
    characters, lengths = spelled(SENTENCES)
    together, noisy = scores(characters, lengths), scores(spelled(SENTENCES, garbage=5)[0], lengths)
    assert torch.equal(together, noisy)
    for row, sentence in enumerate(SENTENCES):
        assert (together[row, len(sentence) :] == 0).all()
        alone, _ = spelled([sentence])
        torch.testing.assert_close(scores(alone[:, : len(sentence)])[0], together[row, : len(sentence)], rtol=0, atol=0)


def test_fitting_is_adagrad(monkeypatch):
    """Of 2 words a step, with the sum of squares of each feature's own gradients."""
    monkeypatch.setattr(template_scores, "_TOGETHER", 2)
    scores = TemplateScores(ALPHABET, 3).double()
    characters, lengths = spelled(SENTENCES[:2])
    tags = torch.tensor([[0, 1, 2, 1, 0], [2, 0, 0, 0, 0]])
    scores.fit(lambda step: (characters, lengths, tags), steps=3)
    table, squares = torch.zeros(scores.nothing + 1, 3).double(), torch.zeros(scores.nothing + 1, 3).double()
    features = scores.rows(characters, lengths)
    words = [(features[0, t], int(tags[0, t])) for t in range(4)] + [(features[1, 0], 2)]
    for step in range(3):
        rate = 0.1 * max(1 - step / 3, 0.01)
        for pair in (words[:2], words[2:4], words[4:]):
            changes = []
            for rows, tag in pair:
                rows = rows[rows != scores.nothing]
                slope = table[rows].sum(0).softmax(0)
                slope[tag] -= 1
                changes += [(int(row), slope) for row in rows]
            for row, slope in changes:
                squares[row] += slope**2
            for row, slope in changes:
                table[row] -= rate * slope / squares[row].sqrt()
    torch.testing.assert_close(scores.table, table)
    assert table.abs().max() > 0.1


def test_many_tags_share_fewer_rows():
    assert TemplateScores(ALPHABET, 17).nothing == (1 << 23) // 17
    assert TemplateScores(ALPHABET, 2, buckets=100).nothing == 100
    scores = TemplateScores(ALPHABET, 2, buckets=1)
    assert set(scores.rows(*spelled(SENTENCES)).unique().tolist()) == {0, 1}


@pytest.mark.parametrize("sizes", [{"num_tags": 0}, {"buckets": 0}])
def test_sizes_of_templates_below_one_are_refused(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}: expected an integer >= 1, got 0"):
        TemplateScores(ALPHABET, **({"num_tags": 2} | sizes))


def test_bytes_are_read_as_integers_and_unknown_numbers_refused():
    scores = TemplateScores(ALPHABET, 2)
    characters, lengths = spelled(SENTENCES)
    assert torch.equal(scores.rows(characters.to(torch.uint8), lengths), scores.rows(characters, lengths))
    with pytest.raises(ValueError, match=r"characters: expected symbols in \[0, 10\), got 10"):
        scores(torch.full((1, 1, 2), 10))
