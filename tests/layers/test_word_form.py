"""Words by all of their characters and by their affixes, which training leaves out by chance."""

import pytest
import torch

from chainrule.layers._word_forms import WordForm

WORDS = torch.tensor([[3, 1, 20, 0], [3, 1, 20, 19], [0, 0, 0, 0]]).repeat(200, 1).unsqueeze(0)


@pytest.fixture
def form():
    torch.manual_seed(0)
    return WordForm(26, output_size=6, dropout=0.25)


def test_both_kinds_are_read_and_no_word_is_zero(form):
    features = form.eval()(WORDS)
    torch.testing.assert_close(features[..., :3], form.characters(WORDS))
    torch.testing.assert_close(features[..., 3:], form.affixes(WORDS))
    assert (features[0, 2::3] == 0).all()
    assert (features[0, :2] != 0).all()


def test_training_leaves_out_all_affixes_of_a_word_or_none(form):
    whole, drawn = form.eval()(WORDS), form.train()(WORDS)
    torch.testing.assert_close(drawn[..., :3], whole[..., :3])
    ratio = (drawn[..., 3:] / whole[..., 3:])[0].view(200, 3, 3)[:, :2].flatten(0, 1)
    torch.testing.assert_close(ratio, ratio[:, :1].expand(-1, 3))
    kept = ratio[:, 0] > 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / 0.75))
    assert 0.68 < kept.float().mean() < 0.82  # 400 draws: three standard deviations


def test_an_odd_width_is_shared_out():
    form = WordForm(26, output_size=7)
    assert (form.characters.output_size, form.affixes.output_size) == (4, 3)
    assert form(WORDS).shape == (1, 600, 7)


@pytest.mark.parametrize("wrong", [{"output_size": 1}, {"num_characters": 0}, {"dropout": 1.0}])
def test_an_impossible_argument_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WordForm(**{"num_characters": 26, "output_size": 8} | wrong)
