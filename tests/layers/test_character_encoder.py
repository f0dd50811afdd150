"""Words as their characters, as their beginnings and endings, and as both."""

import pytest
import torch

from chainrule.layers import CharacterEncoder
from chainrule.layers._word_forms import AffixEmbedding, WordForm

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
        alone = encoder(WORDS[row, 0, : (WORDS[row, 0] != 0).sum()])
        torch.testing.assert_close(features[row, 0], alone, rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_characters_and_words_without_places_for_them_are_zero(kind):
    encoder = make(kind)
    assert torch.equal(encoder(WORDS.to(torch.uint8)), encoder(WORDS))
    assert torch.equal(encoder(WORDS[:, :, :0]), torch.zeros(3, 2, 6, dtype=torch.float64))


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


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_narrow_integers_have_the_rows_of_wide_ones(dtype):
    layer, characters = AffixEmbedding(26, output_size=4, buckets=1000), spelled("walked", "a")
    assert torch.equal(layer(characters.to(dtype)), layer(characters))


def test_words_without_places_for_characters_are_zero():
    assert AffixEmbedding(26, output_size=4)(torch.zeros(2, 3, 0, dtype=torch.long)).tolist() == [[[0.0] * 4] * 3] * 2


FORMS = torch.tensor([[3, 1, 20, 0], [3, 1, 20, 19], [0, 0, 0, 0]]).repeat(200, 1).unsqueeze(0)


@pytest.fixture
def form():
    torch.manual_seed(0)
    return WordForm(26, output_size=6, dropout=0.25)


def test_both_kinds_are_read_and_no_word_is_zero(form):
    features = form.eval()(FORMS)
    torch.testing.assert_close(features[..., :3], form.characters(FORMS))
    torch.testing.assert_close(features[..., 3:], form.affixes(FORMS))
    assert (features[0, 2::3] == 0).all()
    assert (features[0, :2] != 0).all()


def test_training_leaves_out_all_affixes_of_a_word_or_none(form):
    whole, drawn = form.eval()(FORMS), form.train()(FORMS)
    torch.testing.assert_close(drawn[..., :3], whole[..., :3])
    ratio = (drawn[..., 3:] / whole[..., 3:])[0].view(200, 3, 3)[:, :2].flatten(0, 1)
    torch.testing.assert_close(ratio, ratio[:, :1].expand(-1, 3))
    kept = ratio[:, 0] > 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / 0.75))
    assert 0.68 < kept.float().mean() < 0.82  # 400 draws: three standard deviations


def test_an_odd_width_is_shared_out():
    form = WordForm(26, output_size=7)
    assert (form.characters.output_size, form.affixes.output_size) == (4, 3)
    assert form(FORMS).shape == (1, 600, 7)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (CharacterEncoder, {"num_characters": 0}, "num_characters: expected an integer >= 1"),
        (CharacterEncoder, {"kind": "bert"}, "kind: expected one of lstm, cnn, got 'bert'"),
        (CharacterEncoder, {"output_size": 5}, "output_size: expected an even number"),
        (CharacterEncoder, {"dropout": 1.0}, "dropout: expected a number in"),
        *((AffixEmbedding, {name: 0}, name) for name in ("num_characters", "output_size", "longest", "buckets")),
        (WordForm, {"output_size": 1}, "output_size"),
        (WordForm, {"num_characters": 0}, "num_characters"),
        (WordForm, {"dropout": 1.0}, "dropout"),
    ],
)
def test_wrong_arguments_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"num_characters": 26} | options)
    with pytest.raises(ValueError, match="characters: expected integers"):
        make("cnn")(torch.zeros(2, 3, 4))
