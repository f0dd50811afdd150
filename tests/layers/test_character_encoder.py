"""Words as their characters, each different word read once."""

import pytest
import torch

from chainrule.layers import CharacterEncoder

KINDS = ("lstm", "cnn")
WORDS = torch.tensor([[[3, 1, 2, 0], [1, 0, 0, 0]], [[3, 1, 2, 0], [0, 0, 0, 0]], [[4, 4, 4, 4], [1, 0, 0, 0]]])


def make(kind, **options):
    torch.manual_seed(0)
    return CharacterEncoder(5, embedding_size=3, output_size=6, kind=kind, **options).double().eval()


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_has_the_same_features_wherever_it_stands(kind):
    encoder = make(kind)
    features = encoder(WORDS)
    assert features.shape == (3, 2, 6)
    assert torch.equal(features[0, 0], features[1, 0])
    assert torch.equal(features[0, 1], features[2, 1])
    assert (features[1, 1] == 0).all()  # no word
    for row in range(3):
        alone = encoder(WORDS[row, 0, : (WORDS[row, 0] != 0).sum()].unsqueeze(0))
        torch.testing.assert_close(features[row, 0], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_more_padding_changes_nothing(kind):
    encoder = make(kind)
    wider = torch.nn.functional.pad(WORDS, (0, 3))
    torch.testing.assert_close(encoder(wider), encoder(WORDS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_each_different_word_is_read_once(kind, monkeypatch):
    encoder, read = make(kind), []
    embed = encoder.embedding.forward
    monkeypatch.setattr(encoder.embedding, "forward", lambda words: read.append(len(words)) or embed(words))
    encoder(WORDS.repeat(50, 1, 1))
    assert read == [4]


@pytest.mark.parametrize("kind", KINDS)
def test_every_character_counts_and_so_does_its_place(kind):
    encoder = make(kind)
    words = torch.tensor([[1, 2, 3], [2, 1, 3], [1, 2, 4], [1, 2, 0], [5, 2, 3]])
    features = encoder(words)
    for first in range(5):
        for second in range(first):
            assert (features[first] - features[second]).abs().max() > 1e-3


def test_the_convolution_is_the_written_one():
    encoder = make("cnn")
    word = torch.tensor([[2, 5, 1]])
    e = torch.nn.functional.pad(encoder.embedding(word)[0], (0, 0, 1, 1))
    w, b = encoder.convolution.weight, encoder.convolution.bias
    expected = torch.stack([b + sum(w[:, :, j] @ e[k + j] for j in range(3)) for k in range(3)]).amax(0)
    torch.testing.assert_close(encoder(word)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_characters_that_were_read_and_no_others(kind):
    encoder = make(kind)
    encoder(WORDS).square().sum().backward()
    reached = encoder.embedding.weight.grad.abs().sum(1) > 0
    assert reached.tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_no_characters_alone(kind):
    assert (make(kind)(torch.zeros(2, 3, 4, dtype=torch.long)) == 0).all()
    assert make(kind)(torch.zeros(0, 3, 4, dtype=torch.long)).shape == (0, 3, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_characters": 0}, "num_characters: expected an integer >= 1"),
        ({"num_characters": 3, "kind": "bert"}, "kind: expected one of lstm, cnn, got 'bert'"),
        ({"num_characters": 3, "output_size": 5}, "output_size: expected an even number"),
        ({"num_characters": 3, "dropout": 1.0}, "dropout: expected a number in"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        CharacterEncoder(**options)


def test_features_are_no_characters():
    with pytest.raises(ValueError, match="characters: expected integers"):
        make("cnn")(torch.zeros(2, 3, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_characters_and_words_without_places_for_them_are_zero(kind):
    encoder = make(kind)
    assert torch.equal(encoder(WORDS.to(torch.uint8)), encoder(WORDS))
    assert torch.equal(encoder(WORDS[:, :, :0]), torch.zeros(3, 2, 6, dtype=torch.float64))
