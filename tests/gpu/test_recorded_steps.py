"""Sequences drawn by a step that was recorded as a CUDA graph are those of plain steps."""

import pytest
import torch

from chainrule import _executor
from chainrule.heads import _adapter
from chainrule.kernels._cuda_graphs import recorded_scores
from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM, TransformerLM

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
