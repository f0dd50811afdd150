"""Long generation by compiled loops: the same symbols, noise and errors as by the plain steps."""

from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from chainrule import _executor
from chainrule.decoding import beam_search, greedy
from chainrule.heads import _adapter
from chainrule.kernels import _compiled
from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM, WaveNet
from chainrule.models._executors import RecurrentExecutor

pytest.importorskip("numba")
TEXT = torch.randint(9, (4000,), generator=torch.Generator().manual_seed(0))
CELLS = {
    "lstm": {"cell": "lstm"},
    "gru": {"cell": "gru"},
    "gru, reset before": {"cell": "gru", "reset_after": False},
    **{f"rnn, {f}": {"cell": "rnn", "nonlinearity": f} for f in ("tanh", "relu", "sigmoid", "identity")},
}
INPUTS = {
    "one-hot": {},
    "embedding": {"embedding_size": 6},
    "pairs": {"embedding_size": 6, "ngram_order": 2},
    "hashed n-grams": {"embedding_size": 6, "ngram_order": 4, "ngram_buckets": 200},
    "tied": {"tie_weights": True},
}


def network(seed: int = 0, vocab_size: int = 9, **options) -> RecurrentLM:
    torch.manual_seed(seed)
    model = RecurrentLM(vocab_size, hidden_size=11, **options).eval()
    if options.get("nonlinearity") == "identity":  # without bounds, an orthogonal recurrence grows
        for layer in range(3):
            getattr(model.recurrent, f"weight_hh_l{layer}").data.mul_(0.5)
    return model


def wavenet(**options) -> WaveNet:
    torch.manual_seed(0)
    return WaveNet(9, channels=5, blocks=2, layers_per_block=3, skip_channels=7, **options).eval()


def mixture() -> CalibratedMixture:
    members = Ensemble([network(1), network(2, embedding_size=5, ngram_order=3)])
    return CalibratedMixture(members, NgramLM.fit(TEXT, 9, order=4)).eval()


MODELS = {
    **{f"{name}, 3 layers": lambda o=o: network(num_layers=3, **o) for name, o in CELLS.items()},
    **{name: lambda o=o: network(cell="lstm", **o) for name, o in INPUTS.items()},
    "wavenet": wavenet,
    "wavenet of three taps": lambda: wavenet(kernel_size=3),
    "counts": lambda: NgramLM.fit(TEXT, 9, order=4, dtype=torch.float64),
    "mixture": mixture,
}


def drawn(model, most: int, after: int, monkeypatch, **options):
    """Symbols of a stream that goes over to compiled loops after some, and the generator's state at the end."""
    monkeypatch.setattr(_executor, "first_compiled", lambda saved, count: after if saved else None)
    generator = torch.Generator().manual_seed(3)
    symbols = torch.cat(list(islice(model.stream(1, generator=generator, **options), most)))
    return symbols.tolist(), generator.get_state().tolist()


def loops_ran(model, monkeypatch) -> bool:
    """Whether a stream is given compiled scores."""
    given = []
    kind = type(model.prepare())
    rows = kind.compiled_rows
    monkeypatch.setattr(kind, "compiled_rows", lambda self: given.append(rows(self)) or given[-1])
    drawn(model, 4, 2, monkeypatch)
    return given[0] is not None


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_draws_the_same_symbols_from_the_same_noise(name, monkeypatch):
    model = MODELS[name]().double()
    assert drawn(model, 150, 3, monkeypatch) == drawn(model, 150, 10**6, monkeypatch)
    assert loops_ran(model, monkeypatch)


@pytest.mark.parametrize("name", ["mixture", "lstm, 3 layers", "embedding", "wavenet"])
def test_another_default_device_changes_nothing(name, monkeypatch):
    model = MODELS[name]().double()
    wanted = drawn(model, 40, 2, monkeypatch)
    with torch.device("meta"):
        assert loops_ran(model, monkeypatch)
        symbols = drawn(model, 40, 2, monkeypatch)
    assert symbols == wanted


def test_a_label_is_obeyed(monkeypatch):
    model, options = wavenet(num_classes=3).double(), {"context": torch.tensor([2])}
    model.label_bias.weight.data.mul_(20)
    assert drawn(model, 60, 2, monkeypatch, **options) == drawn(model, 60, 10**6, monkeypatch, **options)
    assert drawn(model, 60, 2, monkeypatch, **options) != drawn(model, 60, 2, monkeypatch, context=torch.tensor([1]))


@pytest.mark.parametrize("options", [{"temperature": 0.5}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.7}])
@pytest.mark.parametrize("name", ["lstm, 3 layers", "mixture"])
def test_filters_and_prefixes_are_obeyed(name, options, monkeypatch):
    model, options = MODELS[name]().double(), {**options, "prefix": TEXT[:7]}
    assert drawn(model, 100, 1, monkeypatch, **options) == drawn(model, 100, 10**6, monkeypatch, **options)


def test_of_equal_scores_every_filter_takes_the_first(monkeypatch):
    model = network()
    model.weight_ho.data.zero_()
    model.bias_ho.data.copy_(torch.tensor([0.0, 1, 2, 3, 3, 2, 3, 1, 0]))
    for filters in ({"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}):
        for after in (2, 10**6):
            assert drawn(model, 9, after, monkeypatch, **filters)[0] == [3] * 9
        assert model.sample(3, length=4, **filters).tolist() == [[3] * 4] * 3
    assert greedy(model, max_length=4, eos=None)[0].sequences[0].tolist() == [3] * 4


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_in_float32_are_those_of_the_steps(name):
    model = MODELS[name]()
    with torch.no_grad():
        step, state = model.prepare().step, model.initial_state(1)
        rows, previous = model.prepare().compiled_rows(), None
        scores = rows.begin(state).scores
        for symbol in TEXT[:60].tolist():
            conditional, state = step(previous, state)
            before = np.array([-1]) if previous is None else previous.numpy()
            own = torch.from_numpy(scores(before)[0]).log_softmax(0)
            torch.testing.assert_close(own.to(torch.float32), conditional.logits[0].float(), rtol=0, atol=1e-5)
            previous = torch.tensor([symbol])


def test_draws_in_float32_have_the_probabilities_of_the_model(monkeypatch):
    model = mixture()
    with torch.no_grad():
        model.companion.ngrams.terms.zero_()  # every symbol has the same distribution after any other
        model.companion.ngrams.backoffs.fill_(1)
        for member in model.network.members:
            member.weight_ho.zero_()
            member.bias_ho.copy_(torch.linspace(-1, 1, 9))
        expected = model(TEXT[None, :1]).probs[0, 0].double().numpy()
    symbols, _ = drawn(model, 20_000, 1, monkeypatch)
    counts = np.bincount(symbols, minlength=9)
    assert chisquare(counts, expected / expected.sum() * len(symbols)).pvalue > 1e-4


@torch.no_grad()
def test_rounded_weights_are_kept_as_halves_and_give_the_scores_of_float32(monkeypatch):
    exact = wavenet()

    def scores(model: WaveNet) -> tuple[np.dtype, np.ndarray]:
        rows = model.prepare().compiled_rows()
        step = rows.begin(model.initial_state(1)).scores
        return rows._taps.dtype, np.array([step(np.array([symbol]))[0] for symbol in TEXT[:40].tolist()])

    _, wanted = scores(exact)
    rounded = wavenet()
    for parameter in rounded.parameters():
        if parameter.dim() > 1:
            parameter.copy_(parameter.half().float())
    kind, found = scores(rounded)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    plain_kind, plain = scores(rounded)
    assert plain_kind == np.float32
    if torch.cpu._is_avx2_supported():
        assert kind == np.uint16
    np.testing.assert_array_equal(found, plain)
    # Each weight moves by at most 2⁻¹¹ of itself; here some hundred of them are summed, in four layers of products.
    assert 0 < abs(found - wanted).max() < 100 * 2**-11


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_scores_of_no_distribution_raise(wrong, monkeypatch):
    model = network()
    with torch.no_grad():
        model.bias_ho[4] = wrong
    from chainrule.kernels._compiled_loops import draw

    assert draw(np.array([0, wrong, 1], np.float32), np.zeros(3, np.float32), 1.0) == -1
    rows, state = model.prepare().compiled_rows(), model.initial_state(1)
    stream = _adapter.compiled_draws(rows, state, None, _adapter.Draw(1.0, None, None, None))
    with pytest.raises(ValueError, match="NaN or infinite"):
        next(stream)


def test_plain_steps_run_where_loops_may_not(without_loops, monkeypatch):
    model = network()
    assert loops_ran(model, monkeypatch)
    with without_loops(model, model.recurrent):
        assert not loops_ran(model, monkeypatch)


def test_an_adaptive_softmax_takes_plain_steps(monkeypatch):
    assert not loops_ran(network(adaptive_softmax=True, cutoffs=[4]), monkeypatch)


def test_short_requests_and_many_rows_take_plain_steps(monkeypatch):
    monkeypatch.setattr(RecurrentExecutor, "compiled_rows", lambda *_: pytest.fail("compiled"))
    model = network()
    monkeypatch.setattr(_compiled, "_LOADING", 8 * model.prepare().saved)
    model.sample(1, length=7)
    model.sample(2, length=7)
    model.sample(17, length=8)
    beam_search(model, beam_size=2, max_length=7, eos=None)
    list(islice(model.stream(1), 8))
    list(model.stream(1, count=7))
    for request in (
        lambda: model.sample(1, length=8),
        lambda: model.sample(16, length=8),
        lambda: beam_search(model, beam_size=2, max_length=8, eos=None),
        lambda: next(model.stream(1, count=8)),
        lambda: list(islice(model.stream(1), 9)),
        lambda: model.sample(1, length=9, prefix=TEXT[:1]),
    ):
        with pytest.raises(pytest.fail.Exception):
            request()


def test_a_stream_from_its_first_symbol_on_draws_the_same_and_ends_where_it_is_told(monkeypatch):
    model = network().double()
    assert drawn(model, 40, 0, monkeypatch) == drawn(model, 40, 10**6, monkeypatch)
    assert drawn(model, 99, 0, monkeypatch, count=40) == drawn(model, 40, 0, monkeypatch)
    assert drawn(model, 99, 10**6, monkeypatch, count=40) == drawn(model, 40, 0, monkeypatch)


def test_slow_steps_pay_for_loading_sooner():
    small, deep = (network(num_layers=layers).prepare().saved for layers in (1, 3))
    assert 0 < small < deep
    assert mixture().prepare().saved > 2 * small
    assert _compiled.first_compiled(deep, None) < _compiled.first_compiled(small, None)
