"""A prefix that no sequence of the model begins with is refused, whatever draws the rest."""

import pytest
import torch

from chainrule.decoding import beam_search
from chainrule.heads import Column
from chainrule.models import MultiScalePixelCNN, PixelCNNPP, RecurrentLM, TableMADE, WaveNet

SIZES = {"channels": 4, "layers_per_block": 2, "skip_channels": 4}
MODELS = {
    "categorical": lambda: WaveNet(16, **SIZES),
    "mixture": lambda: WaveNet(16, components=2, **SIZES),
    "pixels": lambda: PixelCNNPP((1, 4, 4), 8, 8, 1, 1, 2).eval(),
    "groups": lambda: MultiScalePixelCNN((1, 4, 4), 8, 8, 1, 2),
    "columns": lambda: TableMADE([Column("categorical", categories=3), Column("real")], 8),
}


@pytest.mark.parametrize("value", [300, -1, 1.5])
@pytest.mark.parametrize("name", MODELS)
def test_elements_that_cannot_be_drawn_begin_no_sample(name, value):
    model, prefix = MODELS[name](), torch.tensor([[value]])
    with pytest.raises(ValueError, match=r"^prefix: expected"):
        model.sample(1, length=model.sequence_length or 4, prefix=prefix)


@pytest.mark.parametrize("value", [300, -1])
def test_nor_a_beam(value):
    model, prefix = MODELS["pixels"](), torch.tensor([[value]])
    with pytest.raises(ValueError, match=r"^prefix: expected"):
        beam_search(model, beam_size=2, max_length=3, eos=None, prefix=prefix)


def test_a_symbol_that_is_never_drawn_may_be_given():
    model = RecurrentLM(3, hidden_size=4)
    with torch.no_grad():
        model.bias_ho[2] = -torch.inf
    drawn = model.sample(2, length=5, prefix=torch.tensor([2, 0]))
    assert drawn[:, :2].tolist() == [[2, 0]] * 2
    assert (drawn[:, 2:] != 2).all()


def test_every_level_of_eight_bits_is_a_prefix():
    """In 8 bits 256 is 0, so that no value was below the number of levels."""
    model = MultiScalePixelCNN((1, 4, 4), 256, channels=8, layers=1, components=2)
    prefix = torch.tensor([255, 0], dtype=torch.uint8)
    assert model.to_sequence(model.sample(2, prefix=prefix))[:, :2].tolist() == [[255, 0]] * 2
