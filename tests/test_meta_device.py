"""PyTorch's recipe for large models: build on the meta device, `to_empty`, `load_state_dict`.

A buffer that the state dict leaves out keeps whatever the memory held: masks of ones let a PixelCNN read its future,
while "all keys matched".
"""

import pytest
import torch
from small_models import EVERY, SEQUENCES, near_rows
from test_contract import log_prob

from chainrule import models
from chainrule.heads import LinearChainCRF, TagConstraints
from chainrule.layers import KneserNey, MaskedConv2d, TemplateScores
from chainrule.layers._masked_linear import MaskedLinear
from chainrule.layers._multi_head_attention import WindowAttention
from chainrule.models._series_window import SeriesScaling

# Of models that hold counts, or that are fitted: there is nothing to count on the meta device.
FITTED = {
    "CalibratedMixture": lambda: models.CalibratedMixture(
        models.RecurrentLM(vocab_size=4, cell="gru", hidden_size=8), models.NgramLM(NGRAMS)
    ),
    "ForecastMixture": lambda: models.ForecastMixture(
        models.Forecaster([SeriesScaling(20.0, 4.0)], hidden_size=8, lags=[1, 2]), [SeriesScaling(20.0, 4.0)]
    ),
    "LinearForecaster": lambda: models.LinearForecaster([SeriesScaling(20.0, 4.0)], lags=[1, 2, 6]),
    "NgramLM": lambda: models.NgramLM(NGRAMS),
    "TableNeighbours": lambda: near_rows(SEQUENCES["TableMADE"]()[0], ROWS),
}
ROWS = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
NGRAMS = KneserNey.fit(torch.randint(4, (40,), generator=torch.Generator().manual_seed(0)), 4, 3)


def made_again(model, make):
    """The model made on the meta device, given memory that holds ones, and the weights of the other."""
    with torch.device("meta"):
        other = make()
    other = other.to_empty(device="cpu")
    for tensor in [*other.parameters(), *other.buffers()]:
        tensor.data.fill_(1)
    result = other.load_state_dict(model.state_dict())
    assert not result.missing_keys
    return other.eval()


@pytest.mark.parametrize("name", EVERY)
def test_models_made_without_memory_and_then_loaded_give_the_same_likelihood(name):
    model, arguments = EVERY[name]()
    if name in FITTED and name not in ("ForecastMixture", "LinearForecaster"):
        model = FITTED[name]()
    other = made_again(model.eval(), FITTED.get(name, lambda: EVERY[name]()[0]))
    assert torch.equal(log_prob(other, *arguments), log_prob(model, *arguments))
    if name in SEQUENCES:
        x, context = (*arguments, None)[:2]
        draws = [
            each.sample(3, context, length=model.to_sequence(x).shape[1], generator=torch.Generator().manual_seed(0))
            for each in (other, model)
        ]
        assert torch.equal(*draws)


WIDE = {
    "a MADE with direct connections": (
        lambda: models.MADE(6, [12], torch.tensor([5, 0, 1, 3, 2, 4]), direct=True),
        (torch.randint(2, (3, 6)).float(),),
    ),
    "shifted windows": (
        lambda: models.SwinTransformer((1, 16, 16), 3, 2, model_size=8, num_heads=2, patch_size=2, window=4),
        (torch.arange(3), torch.randint(2, (3, 1, 16, 16))),
    ),
    "colours": (
        lambda: models.PixelRNN((3, 4, 4), 2, "row", channels=12, layers=1),
        (torch.randint(2, (3, 3, 4, 4)),),
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_options_with_more_masks_too(name):
    make, arguments = WIDE[name]
    model = make().eval()
    assert torch.equal(made_again(model, make).log_prob(*arguments), model.log_prob(*arguments))


CONSTRAINTS = TagConstraints(torch.eye(2) > 0, torch.tensor([True, False]), torch.tensor([False, True]))
MASK = torch.ones(4, 3).tril() > 0
LAYERS = {
    "KneserNey": lambda: KneserNey.from_tables(NGRAMS.tables()),
    "LinearChainCRF": lambda: LinearChainCRF(2, CONSTRAINTS),
    "MaskedConv2d": lambda: MaskedConv2d(3, 6, 3, "A", 3),
    "MaskedLinear": lambda: MaskedLinear(MASK),
    "TemplateScores": lambda: TemplateScores("aAb", 3),
    "WindowAttention": lambda: WindowAttention(8, 2, 4, 4, window=2, shift=1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_buffers_of_layers_are_saved_or_made_again(name):
    layer = LAYERS[name]()
    other = made_again(layer, LAYERS[name])
    for (key, buffer), (_, expected) in zip(other.named_buffers(), layer.named_buffers(), strict=True):
        assert torch.equal(buffer, expected), key


def test_weights_assigned_to_a_model_without_memory_bring_its_buffers():
    x = torch.randint(2, (2, 1, 4, 4))
    model = models.PixelCNN((1, 4, 4), 2, channels=8, layers=1).eval()
    with torch.device("meta"):
        other = models.PixelCNN((1, 4, 4), 2, channels=8, layers=1)
    other.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(other.eval().log_prob(x), model.log_prob(x))


def test_a_mask_without_values_is_refused():
    with torch.device("meta"), pytest.raises(ValueError, match=r"^mask: expected a tensor with values"):
        MaskedLinear(torch.ones(4, 3).tril() > 0)
