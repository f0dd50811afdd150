"""A single row through a Transformer in compiled loops: what the plain steps compute, for every option."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import _executor
from chainrule.models import Ensemble, ImageTransformer, TransformerLM
from chainrule.state import select

pytest.importorskip("numba")
OPTIONS = {
    "rotary": {},
    "alibi, one head of keys": {"position": "alibi", "num_kv_heads": 1},
    "alibi, short window": {"position": "alibi", "window": 5},
    "sinusoidal, biases": {"position": "sinusoidal", "bias": True},
    "learned": {"position": "learned", "context_length": 100},
    "no positions, short window": {"position": None, "window": 3, "num_kv_heads": 2},
    "window of one": {"window": 1},
    "rms, swiglu": {"norm": "rms", "activation": "swiglu"},
    "post-norm, relu": {"norm_first": False, "activation": "relu"},
    "gelu-tanh": {"activation": "gelu-tanh"},
    "n-grams": {"ngram_order": 3, "ngram_buckets": 200},
    "tied": {"tie_weights": True},
}


def made(seed: int = 0, **options) -> TransformerLM:
    torch.manual_seed(seed)
    sizes = {"model_size": 16, "num_layers": 2, "num_heads": 4, "context_length": 12}
    model = TransformerLM(7, **(sizes | options)).eval()
    for weight in model.parameters():  # norms and biases, too, are to be seen
        weight.data += 0.2 * torch.randn_like(weight)
    return model


def scores_from(model, state):
    """The scores of one sequence from a state on, a function of the symbol before."""
    scores = model.prepare().compiled_rows().begin(state).scores
    return lambda symbol: scores(np.array([symbol]))[0]


@torch.no_grad()
def assert_equal_steps(model, symbols, start: int = 0, atol: float = 1e-12) -> None:
    """Compare log-probabilities of plain steps and of compiled loops that go on from element `start`."""
    state, previous, scores = model.initial_state(1), None, None
    for place, symbol in enumerate(symbols):
        if place == start:
            scores = scores_from(model, state)
        conditional, state = model.step(previous, state)
        if scores is not None:
            own = torch.from_numpy(scores(-1 if previous is None else int(previous))).log_softmax(0)
            torch.testing.assert_close(own, conditional.logits[0].log_softmax(0), rtol=0, atol=atol)
        previous = torch.tensor([symbol])


def text(count: int, symbols: int = 7) -> list[int]:
    return torch.randint(symbols, (count,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("start", [0, 3, 20])
@pytest.mark.parametrize("name", OPTIONS)
def test_log_probabilities_are_those_of_plain_steps(name, start):
    assert_equal_steps(made(**OPTIONS[name]).double(), text(80), start)
    assert_equal_steps(made(**OPTIONS[name]), text(40), start, atol=1e-5)


@pytest.mark.parametrize("name", ["rotary", "alibi, short window"])
def test_a_long_text_moves_within_its_buffer(name):
    assert_equal_steps(made(**OPTIONS[name]).double(), text(450))


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["rotary", "alibi", "sinusoidal", None]), st.sampled_from(["gelu", "gelu-tanh", "relu", "swiglu"]),
    st.sampled_from(["layer", "rms"]), st.booleans(), st.booleans(), st.integers(1, 9), st.sampled_from([1, 2, 4]),
    st.integers(1, 3), st.integers(1, 9), st.integers(0, 25),
)  # fmt: skip
def test_any_small_model(position, activation, norm, norm_first, bias, window, groups, layers, units, start):
    model = made(
        seed=window, position=position, activation=activation, norm=norm, norm_first=norm_first, bias=bias,
        window=window, num_kv_heads=groups, num_layers=layers, feed_forward_size=units,
    )  # fmt: skip
    assert_equal_steps(model.double(), text(30), start)


def drawn(model, count: int, after: int | None, monkeypatch, **options):
    monkeypatch.setattr(_executor, "first_compiled", lambda saved, count: after)
    generator = torch.Generator().manual_seed(3)
    symbols = torch.cat(list(islice(model.stream(1, generator=generator, **options), count)))
    return symbols.tolist(), generator.get_state().tolist()


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5, "prefix": torch.tensor([1, 5, 2])}, {"top_k": 3}], ids=str
)
def test_streams_draw_the_same_symbols_from_the_same_noise(options, monkeypatch):
    for model in (made(window=6), Ensemble([made(), made(1, ngram_order=2)])):
        wanted = drawn(model.double(), 60, None, monkeypatch, **options)
        assert drawn(model, 60, 0, monkeypatch, **options) == wanted
        assert drawn(model, 60, 7, monkeypatch, **options) == wanted


def test_images_are_the_same_and_end(monkeypatch):
    torch.manual_seed(0)
    model = ImageTransformer((2, 3, 4), 5, model_size=8, num_layers=2, num_classes=3, window=7).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    options = {"context": torch.tensor([2])}
    wanted = drawn(model, 99, None, monkeypatch, **options)
    assert len(wanted[0]) == 24
    assert drawn(model, 99, 0, monkeypatch, **options) == wanted
    assert drawn(model, 99, 5, monkeypatch, **options) == wanted
    assert model.prepare().compiled_rows() is not None


@torch.no_grad()
def test_a_row_whose_cache_is_half_empty_goes_on():
    model = made().double()
    x = torch.tensor([text(6), text(6)])
    _, state = model.stack(model.inputs(x), None, torch.tensor([6, 2]))
    scores = scores_from(model, select(state, torch.tensor([1])))
    own = torch.from_numpy(scores(int(x[1, 1]))).log_softmax(0)
    torch.testing.assert_close(own, model(x[1:, :3]).logits[0, 2].log_softmax(0), rtol=0, atol=1e-12)


def test_learned_positions_end_with_the_same_error():
    model = made(position="learned", context_length=70)
    scores = scores_from(model, model.initial_state(1))
    for _ in range(70):
        scores(0)
    with pytest.raises(ValueError, match="learned positions end after 70 elements, got 71"):
        scores(0)


@torch.no_grad()
def test_the_weights_of_the_model_and_the_state_given_are_left_alone():
    model = made()
    weights = [weight.clone() for weight in model.state_dict().values()]
    _, state = model.unroll(torch.tensor([[1, 2, 3]]), model.initial_state(1))
    before = [state["blocks"][0][name].clone() for name in ("keys", "values")]
    first, second = (scores_from(model, state) for _ in range(2))
    rows = [np.array([scores(symbol).copy() for symbol in (1, 2, 3)]) for scores in (first, second)]
    assert np.array_equal(*rows)
    assert all(map(torch.equal, before, (state["blocks"][0][name] for name in ("keys", "values"))))
    assert all(map(torch.equal, weights, model.state_dict().values()))


def test_nan_raises():
    model = made()
    model.stack.layers[0].feed_forward.linear1.weight.data[0, 0] = float("nan")
    assert np.isnan(scores_from(model, model.initial_state(1))(-1)).all()


@pytest.mark.parametrize("attention", ["linear", "min-gru"])
def test_other_mixers_take_plain_steps(attention):
    executor = made(attention=attention).prepare()
    assert executor.compiled_rows() is None
    assert executor.step_for(None) == executor.step


def test_a_cache_grows_with_its_elements_not_with_the_window():
    assert_equal_steps(made(context_length=2**40).double(), text(300))


def test_plain_steps_run_where_loops_may_not(without_loops):
    model = made()
    assert model.prepare().compiled_rows() is not None
    with without_loops(model, model.stack.layers[1].mixer):
        assert model.prepare().compiled_rows() is None
