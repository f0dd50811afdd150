"""Scores of templates: what each of them reads, in plain Python, and AdaGrad as it is written."""

import pytest
import torch

from chainrule.layers import _word_forms as template_scores
from chainrule.layers._word_forms import TemplateScores

ALPHABET = "abcABC19."
NUMBERS = {character: number for number, character in enumerate(ALPHABET, 1)}
SENTENCES = [["aB", "b", "Cab.", "1a"], ["c"], [], ["abcabca", "b", "B9"]]
EDGE = "<edge>"


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
        return part(sentence[place].lower()) if 0 <= place < len(sentence) else EDGE

    def form(place):
        return shape(sentence[place]) if 0 <= place < len(sentence) else EDGE

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
def test_sizes_below_one_are_refused(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}: expected an integer >= 1, got 0"):
        TemplateScores(ALPHABET, **({"num_tags": 2} | sizes))


def test_bytes_are_read_as_integers_and_unknown_numbers_refused():
    scores = TemplateScores(ALPHABET, 2)
    characters, lengths = spelled(SENTENCES)
    assert torch.equal(scores.rows(characters.to(torch.uint8), lengths), scores.rows(characters, lengths))
    with pytest.raises(ValueError, match=r"characters: expected symbols in \[0, 10\), got 10"):
        scores(torch.full((1, 1, 2), 10))
