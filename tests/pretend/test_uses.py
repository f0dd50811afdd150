"""Every use of every model, and every layer with lengths, on a device that refuses tensors of another."""

import pytest
import torch
from every_use import MODELS, uses
from pretend_device import APPLE, DEVICE, Card, Functions, Mismatch, PretendTensor, on_card

from chainrule import layers
from chainrule.layers import NgramScores


@pytest.fixture(autouse=True)
def card():
    with Functions(), Card():
        yield


def test_the_card_refuses_what_cuda_refuses():
    there, here = torch.zeros(2, device=DEVICE), torch.zeros(2)
    assert isinstance(there + 1, PretendTensor)
    assert torch.equal((there + here.to(DEVICE)).cpu(), here)
    assert (there * torch.tensor(2.0))[torch.tensor([0, 1])].device == DEVICE  # numbers and indices may be here
    for call in (
        lambda: there + here,
        lambda: here[torch.zeros(1, dtype=torch.long, device=DEVICE)],
        lambda: there.index_select(0, torch.tensor([0])),
        lambda: there.masked_fill(torch.tensor(True), 1.0),
        lambda: torch.where(here > 0, there, there),
        lambda: torch.rand(2, device=DEVICE, generator=torch.Generator()),
        lambda: torch.rand(2, generator=torch.Generator(DEVICE)),
        lambda: there.index_put((torch.tensor([0]),), here[:1]),
    ):
        with pytest.raises(Mismatch):
            call()
    with pytest.raises(TypeError, match="NumPy"):
        there.numpy()


NEED_FLOAT64 = (
    "ForecastMixture",
    "Forecaster",
    "LinearForecaster",
)  # series in the user's unit; their task computes on the processor


def test_the_card_of_apple_refuses_float64():
    there = torch.zeros(2, device=DEVICE)
    if not APPLE:
        assert there.double().dtype == torch.float64
        return
    for call in (
        there.double,
        lambda: torch.zeros(2, dtype=torch.float64, device=DEVICE),
        lambda: there.to(torch.cdouble),
    ):
        with pytest.raises(TypeError, match="float64"):
            call()
    for name in NEED_FLOAT64:
        with pytest.raises(TypeError, match="float64"):
            on_card(MODELS[name]()[0])


@pytest.mark.parametrize("name", [name for name in MODELS if (name in NEED_FLOAT64) != APPLE])
def test_every_use_of_a_model(name):
    """On Apple's card, which refuses all that the other one refuses; on that one the models that need float64."""
    model, arguments = MODELS[name]()
    for what, use in uses(on_card(model.eval()), *on_card(arguments), device=DEVICE).items():
        try:
            use()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            pytest.fail(f"{what}: {error}")


LAYERS = {
    "RNN": lambda: layers.RNN(4, 4, bidirectional=True),
    "LSTM": lambda: layers.LSTM(4, 4, bidirectional=True),
    "GRU": lambda: layers.GRU(4, 4, reset_after=False),
    "MinGRU": lambda: layers.MinGRU(4, 4),
    "MinLSTM": lambda: layers.MinLSTM(4, 4),
    "LinearAttention": lambda: layers.LinearAttention(4, 2),
    "DeltaNet": lambda: layers.DeltaNet(4, 2),
    "CausalAttention": lambda: layers.CausalAttention(4, 2, window=3),
    "CausalConv1d": lambda: layers.CausalConv1d(4, 4, 2),
    "SinusoidalPositions": lambda: layers.SinusoidalPositions(4),
    "LearnedPositions": lambda: layers.LearnedPositions(6, 4),
    "TransformerStack": lambda: layers.TransformerStack(4, num_layers=1, num_heads=2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_lengths_on_the_processor(name):
    layer, x, lengths = on_card(LAYERS[name]()), on_card(torch.randn(3, 6, 4)), torch.tensor([6, 0, 3])
    found, expected = layer(x, None, lengths), layer(x, None, on_card(lengths))
    torch.testing.assert_close(found[0].cpu(), expected[0].cpu())


def test_ngrams_take_lengths_on_the_processor():
    scores = on_card(NgramScores(5, 3, 2))(on_card(torch.randint(5, (2, 4))), torch.tensor([4, 1]))
    assert scores.device == DEVICE
