"""Encoding and decoding with a model: exact, short, and never silently wrong."""

import math
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.coding import DamagedError, decode, encode
from chainrule.coding._streams import _HEAD
from chainrule.heads import Categorical, Column
from chainrule.heads._head import NotDiscreteError
from chainrule.models import MADE, Forecaster, PixelCNNPP, RecurrentLM, TableMADE
from chainrule.models._executors import RecurrentExecutor
from chainrule.models._series_window import SeriesScaling


def language_model(seed=0, **options):
    torch.manual_seed(seed)
    return RecurrentLM(**{"vocab_size": 7, "cell": "lstm", "hidden_size": 12} | options)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 30.0]))
def test_any_batch_of_streams_comes_back(rows, length, seed, sharpness):
    model = language_model(seed % 5)
    with torch.no_grad():
        model.weight_ho *= sharpness
    x = torch.randint(7, (rows, length), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(decode(model, encode(model, x)), x)


def test_the_length_is_that_of_the_likelihood():
    model = language_model()
    x = model.sample(16, length=400, generator=torch.Generator().manual_seed(0))
    bits = -float(model.log_prob(x).detach().sum()) / math.log(2)
    assert bits / 8 <= len(encode(model, x)) <= bits / 8 * 1.001 + 40


def test_symbols_of_probability_zero_are_never_lost():
    model = language_model()
    with torch.no_grad():
        model.bias_ho[3] = -200.0  # exp(-200) is 0 in float32
    x = torch.tensor([[3, 1, 3, 3]])
    data = encode(model, x)
    assert torch.equal(decode(model, data), x)
    assert len(data) < 50


def test_a_model_in_training_is_left_as_it_was_and_codes_without_dropout():
    model = language_model(dropout=0.5).train()
    x = torch.randint(7, (2, 30))
    assert torch.equal(decode(model, encode(model, x)), x)
    assert model.training


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_coded_channel_by_channel_in_their_layout(channels):
    torch.manual_seed(0)
    model = PixelCNNPP((channels, 3, 4), 16, channels=6, layers=1, components=2)
    x = torch.randint(16, (2, channels, 3, 4))
    assert torch.equal(decode(model, encode(model, x)), x)


def test_tables_of_integers_and_missing_values_come_back_in_their_bits():
    torch.manual_seed(0)
    columns = [
        Column("integer", missing=True, atoms=(0.0,), centre=500.0, scale=300.0, low=0),
        Column("categorical", categories=3),
        Column("integer", centre=-4.0, scale=2.0),
    ]
    model = TableMADE(columns, 16, 2).eval()
    x = torch.tensor([[0.0, 1, -4], [torch.nan, 2, 3], [812, 0, -(2**52)], [10**15, 1, 0]], dtype=torch.float64)
    found = decode(model, encode(model, x))
    assert ((found == x) | (found.isnan() & x.isnan())).all()
    usual = x[:2].repeat(40, 1)
    bits = -float(model.log_prob(usual).detach().sum()) / math.log(2)
    assert len(encode(model, usual)) <= bits / 8 * 1.005 + 64


def test_a_context_is_needed_again():
    from chainrule.models import VectorToSequence

    torch.manual_seed(0)
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8)
    x, context = torch.randint(4, (3, 6)), torch.randn(3, 3)
    data = encode(model, x, context)
    assert torch.equal(decode(model, data, context), x)
    with pytest.raises(ValueError, match="another context"):
        decode(model, data, context + 1)


def test_a_density_is_refused_in_one_line():
    model = Forecaster([SeriesScaling(0.0, 1.0)], hidden_size=4, lags=[1, 2])
    with pytest.raises(NotDiscreteError, match="lossless coding needs a distribution of discrete values"):
        encode(model, torch.randn(2, 3), {"past": torch.randn(2, 4)})
    with pytest.raises(NotDiscreteError, match="real numbers"):
        encode(TableMADE([Column("real")], 8, 1), torch.randn(2, 1))


def test_every_single_changed_byte_and_every_cut_is_found():
    model, x = language_model(), torch.randint(7, (2, 9))
    data = encode(model, x)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x40
        with pytest.raises(DamagedError):
            decode(model, bytes(changed))
        with pytest.raises(DamagedError):
            decode(model, data[:place])


def test_a_header_that_claims_more_symbols_or_threads_is_refused_soon_though_its_checksum_fits(monkeypatch):
    model, x = language_model(), torch.randint(7, (2, 9))
    data, steps = encode(model, x), []
    with pytest.raises(DamagedError, match="they end before their symbols"):
        decode(model, _resealed(data, length=1 << 30))  # without the check it decodes for a day
    monkeypatch.setattr(torch, "set_num_threads", steps.append)
    with pytest.raises(DamagedError, match="expected 1 to 16 threads, got 1000"):
        decode(model, _resealed(data, threads=1000))
    assert steps == []


def _resealed(data, threads=None, length=None):
    head = list(_HEAD.unpack_from(data))
    head[3], head[5] = threads or head[3], length or head[5]
    body = _HEAD.pack(*head)[4:] + data[_HEAD.size :]
    return struct.pack("<I", zlib.crc32(body)) + body


def test_a_machine_that_rounds_otherwise_is_refused(monkeypatch):
    model, x = language_model(), torch.randint(7, (2, 9))
    data = encode(model, x)
    step = RecurrentExecutor._prepared_step

    def last_bit(self, x_prev, state):
        conditional, state = step(self, x_prev, state)
        return Categorical(conditional.logits * np.float32(1 + 2**-22)), state

    monkeypatch.setattr(RecurrentExecutor, "_prepared_step", last_bit)
    with pytest.raises(ValueError, match="other last bits"):
        decode(model, data)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: MADE(4, [8]), [[0.5, 1.0, 0.0, 0.3]]),
        (language_model, [[2.5, 1.0]]),
        (lambda: RecurrentLM(vocab_size=1, hidden_size=4), [[5, 0]]),
        (lambda: TableMADE([Column("integer")], 8, 1), [[0.5]]),
    ],
)
def test_elements_outside_the_support_are_never_coded_as_others(make, x):
    with pytest.raises(ValueError, match="x: expected elements of the model's support, got"):
        encode(make(), torch.tensor(x))


def test_other_weights_are_refused_before_what_a_head_announces_is_made(monkeypatch):
    data = encode(language_model(0), torch.randint(7, (2, 9)))
    monkeypatch.setattr("chainrule.coding._streams.arithmetic_digest", None)
    with pytest.raises(ValueError, match="other weights"):
        decode(language_model(1), data)


def test_symbols_outside_the_support_and_weights_that_diverged_are_named():
    model = language_model()
    with pytest.raises(ValueError, match=r"x: expected symbols in \[0, 7\), got 7"):
        encode(model, torch.tensor([[1, 7]]))
    with pytest.raises(ValueError, match="B, T >= 1"):
        encode(model, torch.zeros(0, 3, dtype=torch.long))
    with torch.no_grad():
        model.bias_ho[0] = torch.nan
    with pytest.raises(ValueError, match="diverged"):
        encode(model, torch.tensor([[1, 2]]))


def test_each_part_of_a_model_keeps_its_own_mode():
    model = RecurrentLM(5, hidden_size=8, num_layers=2, dropout=0.5).train()
    model.recurrent.eval()
    x = torch.randint(5, (1, 3))
    assert torch.equal(decode(model, encode(model, x)), x)
    assert (model.training, model.recurrent.training) == (True, False)
