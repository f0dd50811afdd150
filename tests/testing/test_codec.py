"""`check_codec` finds models that cannot be coded, and coders that do not agree."""

import pytest
import torch

from chainrule import Executor
from chainrule.coding import _range_coder as range_coder
from chainrule.heads import Categorical
from chainrule.models import RecurrentLM
from chainrule.testing._stepping import check_codec


@pytest.fixture
def x():
    return torch.randint(5, (3, 20), generator=torch.Generator().manual_seed(0))


class Altered(RecurrentLM):
    """A model whose prepared step adds something to the scores."""

    def prepare(self):
        step = super().prepare().step

        def altered(x_prev, state):
            conditional, state = step(x_prev, state)
            return Categorical(self.alter(conditional.logits)), state

        return Executor(self, altered)


class Batchwise(Altered):
    """Probabilities depend on the other rows of the batch, in `step` as in `forward`."""

    def forward(self, x, context=None, lengths=None):
        return Categorical(self.alter(super().forward(x, context, lengths).logits))

    def alter(self, logits):
        return logits + 3 * (logits - logits.mean(0))


class Forgetful(Altered):
    """Probabilities depend on how often the model was asked, which the module remembers."""

    asked = 0

    def alter(self, logits):
        self.asked += 1
        return logits + 0.3 * torch.arange(5) * (self.asked % 7)


def made(kind):
    torch.manual_seed(1)
    return kind(vocab_size=5, cell="gru", hidden_size=8)


def test_a_model_that_keeps_the_contract_passes(x):
    result = check_codec(made(RecurrentLM), x)
    assert result.ok, result
    assert result.applies


def test_probabilities_that_depend_on_the_batch_are_found(x):
    result = check_codec(made(Batchwise), x)
    assert not result.ok
    assert "one by one" in result.detail


def test_probabilities_that_change_between_calls_are_found(x):
    result = check_codec(made(Forgetful), x)
    assert not result.ok


def test_an_encoder_that_rounds_otherwise_than_the_decoder_is_found(x, monkeypatch):
    write = range_coder.RangeEncoder.choose

    def coarser(self, probabilities, symbols):
        return write(self, (probabilities * 64).round() / 64 + 1e-6, symbols)

    monkeypatch.setattr(range_coder.RangeEncoder, "choose", coarser)
    assert not check_codec(made(RecurrentLM), x).ok


def test_an_encoder_that_wastes_bits_is_found(x, monkeypatch):
    def flat(self, probabilities, symbols):
        return plain[type(self)](self, probabilities * 0 + 1.0, symbols)

    plain = {kind: kind.choose for kind in (range_coder.RangeEncoder, range_coder.RangeDecoder)}
    for kind in plain:
        monkeypatch.setattr(kind, "choose", flat)
    model, certain = made(RecurrentLM), torch.zeros(4, 150, dtype=torch.long)
    with torch.no_grad():
        model.bias_ho[0] += 30
    result = check_codec(model, certain)
    assert not result.ok
    assert "bytes coded" in result.detail


def test_damage_that_is_not_found_fails(x, monkeypatch):
    monkeypatch.setattr("chainrule.coding._streams.crc32", lambda data: 0)
    monkeypatch.setattr("chainrule.coding._streams._weights", lambda *_: bytes(8))
    monkeypatch.setattr("chainrule.coding._streams._probed", lambda *_: bytes(4))
    assert not check_codec(made(RecurrentLM), x).ok


def test_a_density_is_left_out():
    from chainrule.models import Forecaster
    from chainrule.models._series_window import SeriesScaling

    model = Forecaster([SeriesScaling(0.0, 1.0)], hidden_size=4, lags=[1, 2])
    result = check_codec(model, torch.randn(2, 3), {"past": torch.randn(2, 4)})
    assert result.ok
    assert not result.applies
