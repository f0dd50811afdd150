"""An image of attention shows the weights it is given, each word in its place."""

import pytest
import torch

from chainrule_app.pages.attention_figures import attention_map


def test_the_image_holds_the_weights_and_the_words(tmp_path):
    weights = torch.rand(3, 2).softmax(1)
    figure = attention_map(weights, ["$ein$", "hund"], ["a", "<unk>", "<eos>"])
    [axes] = figure.axes
    assert torch.allclose(torch.tensor(axes.images[0].get_array().tolist()), weights)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "<unk>", "<eos>"]
    assert [label.get_text() for label in axes.get_xticklabels()] == [r"\$ein\$", "hund"]
    figure.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


def test_words_that_are_not_as_many_as_weights_are_refused():
    with pytest.raises(ValueError, match=r"weights: expected shape \(1, 2\)"):
        attention_map(torch.ones(2, 1), ["a", "b"], ["c"])
