"""Words as the sum of what their beginnings and endings say."""

import pytest
import torch

from chainrule.layers._word_forms import AffixEmbedding


def spelled(*words):
    width = max(map(len, words))
    return torch.tensor([[ord(letter) - 96 for letter in word] + [0] * (width - len(word)) for word in words])


@pytest.fixture
def embed():
    torch.manual_seed(0)
    layer = AffixEmbedding(26, output_size=6, longest=3).double()
    return lambda *words: layer(spelled(*words))


def test_beginnings_and_endings_add_up(embed):
    walked, talked, walking, talking = embed("walked", "talked", "walking", "talking")
    torch.testing.assert_close(walked - talked, walking - talking)
    assert (walked - talked).abs().min() > 1e-6


def test_the_middle_of_a_long_word_does_not_count(embed):
    features = embed("abcdefg", "abcxefg", "abcefg", "abdefg")
    assert torch.equal(features[0], features[1])
    assert torch.equal(features[0], features[2])
    assert not torch.equal(features[0], features[3])


def test_a_letter_counts_by_its_place_and_by_its_end(embed):
    features = embed("ab", "ba", "a", "aa", "aaa")
    for first in range(5):
        for second in range(first):
            assert (features[first] - features[second]).abs().max() > 1e-3
    assert torch.equal(*embed("aaa", "aaaa"))  # their affixes of up to three letters are the same


def test_padding_changes_nothing_and_no_word_is_zero():
    layer = AffixEmbedding(26, output_size=6)
    words = spelled("cat", "", "cats").unsqueeze(0)
    wider = torch.nn.functional.pad(words, (0, 3))
    assert torch.equal(layer(words), layer(wider))
    assert (layer(words)[0, 1] == 0).all()


def test_the_table_learns_from_words_and_not_from_padding():
    layer = AffixEmbedding(26, output_size=2, longest=2)
    layer(spelled("ab", "")).sum().backward()
    assert int(layer.table.weight.grad.abs().sum(1).count_nonzero()) == 4  # a-, ab-, -b, -ab
    layer.zero_grad()
    layer(torch.zeros(2, 3, dtype=torch.long)).sum().backward()
    assert (layer.table.weight.grad == 0).all()


@pytest.mark.parametrize("name", ["num_characters", "output_size", "longest", "buckets"])
def test_an_impossible_size_is_refused(name):
    with pytest.raises(ValueError, match=name):
        AffixEmbedding(**{"num_characters": 26, name: 0})


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_narrow_integers_have_the_rows_of_wide_ones(dtype):
    layer, characters = AffixEmbedding(26, output_size=4, buckets=1000), spelled("walked", "a")
    assert torch.equal(layer(characters.to(dtype)), layer(characters))


def test_words_without_places_for_characters_are_zero():
    assert AffixEmbedding(26, output_size=4)(torch.zeros(2, 3, 0, dtype=torch.long)).tolist() == [[[0.0] * 4] * 3] * 2
