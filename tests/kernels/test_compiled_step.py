"""`step` in compiled loops for a few rows: what plain steps compute, whatever becomes of the states."""

import random

import pytest
import torch

from chainrule.decoding import beam_search
from chainrule.heads._adapter import CompiledStep
from chainrule.kernels._compiled import FEW
from chainrule.models import CalibratedMixture, Ensemble, ImageTransformer, NgramLM, RecurrentLM, TransformerLM, WaveNet
from chainrule.state import concatenate, select

pytest.importorskip("numba")
V = 7
TEXT = torch.randint(V, (2000,), generator=torch.Generator().manual_seed(0))


def transformer(**options):
    torch.manual_seed(1)
    sizes = {"model_size": 16, "num_layers": 2, "num_heads": 4, "context_length": 12}
    return TransformerLM(V, **(sizes | options)).double().eval()


def recurrent(cell="lstm", **options):
    torch.manual_seed(2)
    return RecurrentLM(V, cell, hidden_size=9, num_layers=2, **options).double().eval()


def counts():
    return NgramLM.fit(TEXT, V, order=4, dtype=torch.float64)


MODELS = {
    "rotary": transformer,
    "alibi, n-grams": lambda: transformer(position="alibi", num_kv_heads=2, ngram_order=3, ngram_buckets=90),
    "sinusoidal": lambda: transformer(position="sinusoidal", bias=True),
    "learned": lambda: transformer(position="learned", context_length=400, window=9),
    "post-norm": lambda: transformer(norm_first=False, activation="relu"),
    "lstm": recurrent,
    "gru": lambda: recurrent("gru", embedding_size=5, ngram_order=3, ngram_buckets=90),
    "gru, reset before": lambda: recurrent("gru", reset_after=False),
    "rnn": lambda: recurrent("rnn", nonlinearity="relu"),
    "counts": counts,
    "mean": lambda: CalibratedMixture(Ensemble([recurrent(), transformer()]), counts()).double().eval(),
}


def assert_equal(one, other):
    torch.testing.assert_close(one.logits.double(), other.logits.double(), rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_rows_that_join_and_leave_and_forks_are_as_in_plain_steps(name):
    model, draw = MODELS[name](), random.Random(3)
    step = model.prepare().step_for(None)
    assert isinstance(step, CompiledStep)
    x_prev, state = None, model.initial_state(2)
    plain, held = state, []
    for _ in range(160):
        held.append((x_prev, state, plain))
        conditional, state = step(x_prev, state)
        expected, plain = model.step(x_prev, plain)
        assert_equal(conditional, expected)
        x_prev = torch.tensor([draw.randrange(V) for _ in range(len(expected.logits))])
        if draw.random() < 0.1:  # a text begins
            _, new = model.unroll(TEXT[None, :5], model.initial_state(1))
            x_prev = torch.cat([x_prev, TEXT[4:5]])
            state, plain = concatenate([state, new]), concatenate([plain, new])
        if draw.random() < 0.1:  # some leave; others are forked
            rows = torch.tensor([draw.randrange(len(x_prev)) for _ in range(draw.randint(1, 4))])
            x_prev, state, plain = x_prev[rows], select(state, rows), select(plain, rows)
        if draw.random() < 0.1:  # back to an earlier state, which must be what it was
            x_prev, state, plain = draw.choice(held[-4:])
    # The state is one of the model's own.
    x_prev = torch.zeros_like(x_prev) if x_prev is not None else x_prev
    assert_equal(model.step(x_prev, state)[0], model.step(x_prev, plain)[0])
    chunk = TEXT[None, :4].expand(len(expected.logits) if x_prev is None else len(x_prev), -1)
    assert_equal(model.unroll(chunk, state, x_prev)[0], model.unroll(chunk, plain, x_prev)[0])


@torch.no_grad()
@pytest.mark.parametrize("name", ["rotary", "lstm", "mean"])
def test_a_row_has_the_same_bits_in_any_company(name):
    model = MODELS[name]().float()
    step = model.prepare().step_for(None)
    alone, crowd, first, many = model.initial_state(1), model.initial_state(5), None, None
    for t in range(30):
        single, alone = step(first, alone)
        together, crowd = step(many, crowd)
        assert torch.equal(single.parameters[0][0], together.parameters[0][2])
        many = TEXT[5 * t : 5 * t + 5]
        first = many[2:3]


@torch.no_grad()
def test_many_rows_and_odd_symbols_take_plain_steps(monkeypatch):
    model = recurrent()
    step = model.prepare().step_for(None)
    _, state = model.unroll(TEXT[None, :3], model.initial_state(1))
    monkeypatch.setattr(step._rows, "begin", lambda *_: pytest.fail("compiled"))
    many = select(state, torch.zeros(FEW + 1, dtype=torch.long))
    assert_equal(step(TEXT[: FEW + 1], many)[0], model.step(TEXT[: FEW + 1], many)[0])
    assert_equal(step(TEXT[:1].int(), state)[0], model.step(TEXT[:1], state)[0])
    for wrong in (V + 1, -1):
        with pytest.raises((ValueError, IndexError)):
            step(torch.tensor([wrong]), state)
    with pytest.raises(pytest.fail.Exception):
        step(TEXT[:1], state)


@torch.no_grad()
def test_weights_that_change_are_read_by_the_next_executor():
    model = transformer()
    before = model.prepare().step_for(None)(None, model.initial_state(1))[0].logits
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    after, _ = model.prepare().step_for(None)(None, model.initial_state(1))
    assert_equal(after, model.step(None, model.initial_state(1))[0])
    assert not torch.allclose(after.logits, before)


def test_models_without_loops_or_with_long_queues_have_none(without_loops):
    torch.manual_seed(0)
    wavenet = WaveNet(V, channels=5, blocks=1, layers_per_block=2, skip_channels=7).eval()
    for model in (wavenet, transformer(attention="linear"), CalibratedMixture(wavenet, counts()).eval()):
        executor = model.prepare()
        assert executor.step_for(None) == executor.step
    model = transformer()
    assert isinstance(model.prepare().step_for(None), CompiledStep)
    with without_loops(model, model.stack.layers[1].mixer):
        assert not isinstance(model.prepare().step_for(None), CompiledStep)


@torch.no_grad()
def test_pictures_step_by_step():
    torch.manual_seed(0)
    model = ImageTransformer((1, 3, 4), 5, model_size=8, num_layers=2, num_classes=3, window=7).double().eval()
    step, x_prev, state = model.prepare().step_for(None), None, model.initial_state(2, torch.tensor([2, 0]))
    plain = state
    for t in range(12):
        conditional, state = step(x_prev, state)
        expected, plain = model.step(x_prev, plain)
        assert_equal(conditional, expected)
        x_prev = TEXT[2 * t : 2 * t + 2] % 5


@pytest.mark.parametrize("width", [1, 4])
def test_a_search_finds_the_same(width, monkeypatch):
    model = MODELS["mean"]()
    options = {"beam_size": width, "max_length": 40, "eos": None, "prefix": TEXT[:3]}
    (expected,) = beam_search(model, **options)
    monkeypatch.setattr("chainrule._executor.first_compiled", lambda saved, count: 0)
    (found,) = beam_search(model, **options)
    assert torch.equal(found.sequences[0], expected.sequences[0])
    torch.testing.assert_close(found.log_probs, expected.log_probs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("count", [2, 16])
def test_samples_of_a_few_rows_are_the_same(count, monkeypatch):
    model, drawn = MODELS["mean"](), []
    for after in (None, 0, 5):
        monkeypatch.setattr("chainrule._executor.first_compiled", lambda saved, wanted, after=after: after)
        drawn.append(model.sample(count, length=40, generator=torch.Generator().manual_seed(4)))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
