"""A step recorded as a CUDA graph draws and learns the same as plain steps."""

import warnings

import pytest
import torch
from torch import nn
from training_toy import ToyBatch

from chainrule import _executor
from chainrule.heads import _adapter
from chainrule.kernels._cuda_graphs import recorded_gradient, recorded_scores
from chainrule.layers import LSTM
from chainrule.models import (
    MADE,
    VAE,
    CalibratedMixture,
    ConvNet,
    Ensemble,
    GatedPixelCNN,
    NgramLM,
    PixelCNNPP,
    RecurrentLM,
    TransformerLM,
    WaveNet,
)
from chainrule.modes import seed_torch
from chainrule.training import Processes
from chainrule.training import _gradients as gradients
from chainrule.training._evaluate import Objective

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

BLOCKS = {"model_size": 8, "num_layers": 2, "num_heads": 2, "context_length": 32}


def counted():
    return NgramLM.fit(torch.randint(5, (400,)), vocab_size=5, order=3)


MODELS = {
    "lstm": lambda: RecurrentLM(5, "lstm", 8, 8, 2),
    "gru, one-hot": lambda: RecurrentLM(5, "gru", 8),
    "rnn with n-grams": lambda: RecurrentLM(5, "rnn", 8, 8, ngram_order=3),
    "mean": lambda: Ensemble([RecurrentLM(5, "lstm", 8, 8), RecurrentLM(5, "gru", 6, 6)]),
    "counts": counted,
    "attention": lambda: TransformerLM(5, **BLOCKS),
    "windows": lambda: TransformerLM(5, **BLOCKS, window=6, num_kv_heads=1),
    "linear attention": lambda: TransformerLM(5, **BLOCKS, attention="linear"),
    "two networks and counts": lambda: CalibratedMixture(
        Ensemble([RecurrentLM(5, "lstm", 8, 8), RecurrentLM(5, "lstm", 8, 8)]), counted()
    ),
}


def drawn(model, rows, monkeypatch, at):
    """Two hundred symbols of each row, and how many steps were recorded on the way."""
    launches = []
    monkeypatch.setattr(_executor, "RECORDED", at)
    monkeypatch.setattr(
        _adapter, "recorded_scores", lambda *given: launches.append(recorded_scores(*given)) or launches[-1]
    )
    generator = torch.Generator("cuda").manual_seed(3)
    return model.sample(rows, length=200, prefix=torch.tensor([1, 2]).cuda(), generator=generator), launches


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", MODELS)
def test_symbols_are_those_of_plain_steps(name, rows, monkeypatch):
    torch.manual_seed(0)
    model = MODELS[name]().double().cuda()
    plain, _ = drawn(model, rows, monkeypatch, at=10**9)
    fast, launches = drawn(model, rows, monkeypatch, at=20)
    assert len(launches) == 1
    assert launches[0] is not None
    assert torch.equal(fast, plain)


def test_positions_that_end_are_not_recorded(monkeypatch):
    blocks = BLOCKS | {"context_length": 256}
    model = TransformerLM(5, **blocks, position="learned").cuda()
    assert drawn(model, 2, monkeypatch, at=20)[1] == [None]


def test_no_step_is_recorded_that_waits_for_the_device_or_whose_state_grows():
    x, state = torch.zeros(2, device="cuda"), torch.zeros(2, 3, device="cuda")
    assert recorded_scores(lambda x, state: (state * x.sum().item(), state), x, state) is None
    assert recorded_scores(lambda x, state: (state, torch.cat([state, state], 1)), x, state) is None
    assert torch.equal(state + 1, torch.ones(2, 3, device="cuda"))  # the device goes on
    launch = recorded_scores(lambda x, state: (state + x.unsqueeze(1), state + 1), x, state)
    assert [float(launch(x + 1)[0, 0]) for _ in range(3)] == [1, 2, 3]


def test_symbols_are_drawn_from_torchs_own_generator_after_a_step_that_cannot_be_recorded():
    model = TransformerLM(5, **BLOCKS | {"context_length": 256}, position="learned").cuda()
    assert model.sample(2, length=100).shape == (2, 100)


def test_randomness_goes_on_after_a_gradient_that_cannot_be_recorded():
    model = nn.Linear(3, 1).cuda()

    def waiting(x):
        (model(x).sum() * x.sum().item()).backward()
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recorded_gradient(waiting, torch.ones(2, 3, device="cuda"), model) is None
    assert model.weight.grad is None
    seed_torch(0)
    assert nn.functional.dropout(torch.ones(100, device="cuda")).unique().tolist() == [0, 2]


DROPPING = {"dropout": 0.4}
IMAGE = (1, 6, 6)
TRAINED = {
    "lstm": (lambda: RecurrentLM(5, "lstm", 8, 8, 2, **DROPPING), (4, 7), {}),
    "gru": (lambda: RecurrentLM(5, "gru", 8, 8, ngram_order=3), (4, 7), {}),
    "mean": (lambda: Ensemble([RecurrentLM(5, "lstm", 8, 8), RecurrentLM(5, "lstm", 8, 8)]), (4, 7), {}),
    "windows": (lambda: TransformerLM(5, **BLOCKS, window=6, **DROPPING), (4, 7), {}),
    "wavenet": (lambda: WaveNet(5, channels=6, blocks=2, layers_per_block=2, skip_channels=7), (4, 7), {}),
    "made": (lambda: MADE(12, [16]), (4, 12), {"whole": True}),
    "gated": (lambda: GatedPixelCNN(IMAGE, levels=5, channels=8, layers=3), (4, *IMAGE), {"whole": True}),
    "pixelcnn++": (
        lambda: PixelCNNPP((3, 8, 8), levels=5, channels=8, layers=1, components=2, dropout=0.3), (4, 3, 8, 8),
        {"whole": True},
    ),
    "vae": (lambda: VAE(IMAGE, levels=5, latent_size=2), (4, *IMAGE), {"whole": True}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", TRAINED)
def test_losses_and_gradients_are_those_of_plain_steps(name, dtype, monkeypatch):
    make, shape, kind = TRAINED[name]
    torch.manual_seed(0)
    model = make().cuda().train()
    batches = [torch.randint(2 if name == "made" else 5, shape) for _ in range(12)]
    if len(shape) == 2 and not kind:  # chunks, each after the one before
        batches = [
            ToyBatch(x, previous=None if not place else batches[place - 1][:, -1]) for place, x in enumerate(batches)
        ]
    else:
        batches = [ToyBatch(x, **kind) for x in batches]
    figures = []
    for at in 6, 10**9:
        monkeypatch.setattr(gradients, "RECORDED", at)
        group = Processes(0, 1, torch.device("cuda"))
        compute, state, figures_of = gradients.Gradients(Objective(model, dtype), model, group, 1.0), None, []
        for step, batch in enumerate(batches):
            result = compute(batch, state, 1.0, lambda step=step: seed_torch(step))
            state = result.state
            weights = [weight.grad.double().sum() for weight in model.parameters() if weight.grad is not None]
            figures_of.append(torch.stack([*weights, result.nats.double(), result.gradient_norm.double()]).cpu())
            model.zero_grad()
        figures.append(torch.stack(figures_of))
        assert (compute._recorded is not None) == (at == 6)
    near = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.02}
    torch.testing.assert_close(*figures, **near)


def test_mixed_images_are_recorded(monkeypatch):
    monkeypatch.setattr(gradients, "RECORDED", 3)
    model = ConvNet((1, 8, 8), num_classes=3, mixup=0.2).cuda().train()
    compute = gradients.Gradients(Objective(model), model, Processes(0, 1, torch.device("cuda")), 1.0)
    for step in range(8):
        batch = ToyBatch(torch.randint(3, (4,)), context=torch.randint(256, (4, 1, 8, 8)), whole=True)
        compute(batch, None, 1.0, lambda step=step: seed_torch(step))
        model.zero_grad()
    assert compute._recorded is not None


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 7, 1])])
def test_layers_drop_what_the_written_out_recurrence_drops(lengths, monkeypatch):
    layer = LSTM(3, 4, num_layers=3, dropout=0.5, bidirectional=lengths is not None).double().cuda()
    x = torch.randn(3, 7, 3, dtype=torch.float64, device="cuda")
    results = []
    for kernels in "on", "off":
        monkeypatch.setenv("CHAINRULE_KERNELS", kernels)
        seed_torch(3)
        output, last = layer(x, None, lengths)
        results.append((output, *last))
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain)
