"""The same figures on a GPU as on the processor. Skipped where there is none."""

import copy

import pytest
import torch

from chainrule.diagnostics import gradient_flow
from chainrule.layers import GRU, LSTM, RNN
from chainrule.models import (
    CalibratedMixture,
    Forecaster,
    GatedPixelCNN,
    LinearForecaster,
    NgramLM,
    PixelCNN,
    RecurrentLM,
    WaveNet,
)
from chainrule.models._series_window import SeriesScaling
from chainrule.testing import check_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LAYERS = {
    "lstm": lambda: LSTM(3, 4, 2),
    "gru": lambda: GRU(3, 4, 2),
    "gru, reset before": lambda: GRU(3, 4, 2, reset_after=False),
    "rnn": lambda: RNN(3, 4, 2),
    "rnn, sigmoid": lambda: RNN(3, 4, 2, nonlinearity="sigmoid"),
}


@pytest.mark.parametrize("symbols", [False, True], ids=["features", "one-hot"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 3, 0, 5, 7])], ids=["full", "unequal"])
@pytest.mark.parametrize("kind", LAYERS)
def test_values_and_gradients_are_those_of_the_processor(kind, lengths, symbols):
    made = LAYERS[kind]().double()
    x = torch.randint(3, (5, 7)) if symbols else torch.randn(5, 7, 3, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        layer = copy.deepcopy(made).to(device)
        output, _ = layer(x.to(device), None, None if lengths is None else lengths.to(device))
        output.square().sum().backward()
        results.append([output.cpu(), *(parameter.grad.cpu() for parameter in layer.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_of_every_step_are_those_of_the_processor(kind):
    layer, x, lengths = LAYERS[kind]().double(), torch.randn(3, 9, 3, dtype=torch.float64), torch.tensor([9, 4, 1])
    here = gradient_flow(layer, x, "mean", lengths)
    there = gradient_flow(layer.cuda(), x.cuda(), "mean", lengths.cuda())
    assert here.memory_length == there.memory_length
    for name in ("delta", "jacobian_norms", "product_norms", "bound", "influence"):
        for ours, theirs in zip(getattr(here, name), getattr(there, name), strict=True):
            torch.testing.assert_close(ours, theirs.cpu(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_a_language_model_keeps_the_contract_there(cell):
    model = RecurrentLM(vocab_size=4, cell=cell, hidden_size=8, num_layers=2).cuda()
    report = check_model(model, torch.randint(4, (3, 6)).cuda(), lengths=torch.tensor([6, 2, 4]).cuda())
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 3, 0, 5, 7])], ids=["full", "unequal"])
def test_an_evaluated_layer_has_gradients_without_a_warning_and_in_bfloat16_no_float16(kind, lengths):
    layer = copy.deepcopy(LAYERS[kind]().cuda()).eval()
    x = torch.randn(5, 7, 3, device="cuda")
    layer(x, None, lengths)[0].sum().backward()
    assert layer.weight_ih_l0.grad.isfinite().all()
    with torch.autocast("cuda", torch.bfloat16):
        output, _ = layer(1e5 * x, None, lengths)  # beyond float16
    assert output.dtype != torch.float16
    assert output.isfinite().all()


@pytest.mark.parametrize("ragged", [False, True])
def test_bfloat16_training_lowers_the_loss_there(ragged):
    model = RecurrentLM(vocab_size=4, hidden_size=32).cuda()
    lengths = torch.arange(9, 17) if ragged else None
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    x = torch.randint(4, (8, 16)).cuda()
    losses = []
    for _ in range(40):
        with torch.autocast("cuda", torch.bfloat16):
            loss = -model.log_prob(x, lengths=lengths).mean() / 16
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


def test_lines_are_fitted_and_averaged_there():
    values = 20 + torch.randn(120, 2, generator=torch.Generator().manual_seed(0)).double().cumsum(0)
    scalings = [SeriesScaling.fit(column, 1) for column in values.unbind(1)]
    linear, same = (LinearForecaster(scalings, lags=[1, 2, 5]) for _ in range(2))
    linear.fit(values, torch.zeros(120, 0))
    same.cuda().fit(values.cuda(), torch.zeros(120, 0).cuda())
    torch.testing.assert_close(same.coefficients.cpu(), linear.coefficients)
    model = CalibratedMixture(Forecaster(scalings, hidden_size=8, lags=[1, 2, 5]), linear).cuda()
    x, context = values[100:106].t().cuda(), {"past": values[90:100].t().cuda(), "series": torch.tensor([0, 1]).cuda()}
    report = check_model(model, x, context)
    assert report.ok, str(report)


def test_counts_of_ngrams_are_looked_up_there():
    text = torch.randint(4, (400,), generator=torch.Generator().manual_seed(0))
    model = CalibratedMixture(RecurrentLM(vocab_size=4, hidden_size=8), NgramLM.fit(text, 4, 4)).double()
    x = text[:60].view(3, 20)
    probs, nats = model(x).probs, model(x).log_prob(x)
    there = model.cuda()(x.cuda())
    assert there.parts[1].probs.device.type == "cuda"
    torch.testing.assert_close(probs, there.probs.cpu())
    torch.testing.assert_close(nats, there.log_prob(x.cuda()).cpu())
    report = check_model(model, x[:, :6].cuda(), lengths=torch.tensor([6, 2, 4]).cuda())
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
def test_an_image_model_keeps_the_contract_there(kind):
    model = kind((3, 3, 3), levels=3, channels=10, layers=2, num_classes=3).cuda()
    report = check_model(model, torch.randint(3, (3, 3, 3, 3)).cuda(), torch.arange(3).cuda())
    assert report.ok, str(report)


def test_a_wavenet_keeps_the_contract_there():
    model = WaveNet(levels=5, channels=6, blocks=2, layers_per_block=2, skip_channels=7).cuda()
    report = check_model(model, torch.randint(5, (3, 12)).cuda())
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
def test_training_under_autocast_gives_finite_gradients(kind):
    model = kind((1, 8, 8), levels=4, channels=16, layers=3).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = -model.log_prob(torch.randint(4, (4, 1, 8, 8)).cuda()).mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
