"""Long rows of symbols read in compiled loops: the conditionals and states of `unroll`."""

from functools import partial

import pytest
import torch

from chainrule import _executor
from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM, _executors
from chainrule.state import leaves

pytest.importorskip("numba")
from chainrule.kernels import _compiled_reading as reading

pytestmark = pytest.mark.kernel
V, B, T, M = 7, 19, 12, 37  # rows of the last tile are fewer; the last panel laps over the one before
TEXT = torch.randint(V, (400,), generator=torch.Generator().manual_seed(0))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-6}
NETWORK = partial(RecurrentLM, V, embedding_size=5, hidden_size=M)
MODELS = {
    "lstm": partial(NETWORK, ngram_order=3),
    "gru, reset after": partial(NETWORK, "gru"),
    "gru, reset before": partial(NETWORK, "gru", reset_after=False),
    **{f: partial(NETWORK, "rnn", nonlinearity=f) for f in ("tanh", "relu", "sigmoid", "identity")},
    "two layers": partial(NETWORK, num_layers=2),
    "tied weights": partial(RecurrentLM, V, embedding_size=M, hidden_size=M, tie_weights=True),
    "counts": lambda: NgramLM.fit(TEXT, V, 5),
    "counts of lines": lambda: NgramLM.fit(TEXT.where(torch.arange(400) % 20 > 0, V), V, 4, lines=True),
    "counts without the scored occurrence": lambda: NgramLM(NgramLM.fit(TEXT, V, 5).ngrams.leaving_one_out()),
    "ensemble with counts": lambda: CalibratedMixture(Ensemble([NETWORK(), NETWORK("gru")]), NgramLM.fit(TEXT, V, 5)),
}


def made(name, dtype=torch.float64):
    torch.manual_seed(0)
    return MODELS[name]().to(dtype).eval()


@torch.no_grad()
def read(model, unroll, x, chunks=(5, 7)):
    """Return log p of each symbol, entropies, and the states after each chunk."""
    state, previous, found = model.initial_state(len(x)), None, []
    for part in x.split(chunks, dim=1):
        conditionals, state = unroll(part, state, previous)
        found += [conditionals.log_prob(part), conditionals.entropy(), *leaves(state)]
        previous = part[:, -1]
    return found


def assert_close(fast, plain, dtype):
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype] * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_conditionals_and_states_are_those_of_unroll(name, dtype):
    model = made(name, dtype)
    x = torch.cat([TEXT[: B // 2 * T].view(-1, T), torch.randint(V, (B - B // 2, T))])  # what was counted, and other
    fast, plain = model.prepare().compiled_unroll, model.unroll
    assert fast is not None
    assert_close(read(model, fast, x), read(model, plain, x), dtype)
    assert_close(read(model, fast, x[:1]), read(model, plain, x[:1]), dtype)


def test_projections_too_many_to_look_up_are_computed(monkeypatch):
    model, x = made("lstm"), torch.randint(V, (B, T))
    monkeypatch.setattr(_executors, "LOOK_UP_LIMIT", 0)
    unroll = model.prepare().compiled_unroll
    assert unroll.args[0] == model.embedded
    assert_close(read(model, unroll, x), read(model, model.unroll, x), torch.float64)


@pytest.mark.parametrize("name", ["lstm", "gru, reset before", "counts"])
def test_threads_share_rows_and_change_no_bit(name, monkeypatch):
    model, x = made(name, torch.float32), torch.randint(V, (B, T))
    unroll, found = model.prepare().compiled_unroll, []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(read(model, unroll, x))
    assert B // reading._LEAST_ROWS >= 2
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_symbol_outside_the_vocabulary_is_refused_and_breaks_contexts_like_an_unseen_one():
    model, x = made("counts"), TEXT[:T].view(1, -1).clone()
    x[0, 6] = V + 3
    state = model.initial_state(1)
    fast, plain = (unroll(x, state)[0] for unroll in (model.prepare().compiled_unroll, model.unroll))
    torch.testing.assert_close(fast.probs, plain.probs)
    with pytest.raises(ValueError, match=rf"expected symbols in \[0, {V}\), got {V + 3}"):
        fast.log_prob(x)


def test_loops_read_where_they_pay_for_loading_and_the_layer_may_be_replaced(monkeypatch):
    monkeypatch.setattr(_executor, "READ", 100)
    model = made("ensemble with counts")
    executor = model.prepare()
    assert executor.unroll_for(99) == executor.unroll
    assert executor.unroll_for(100) is executor.compiled_unroll
    monkeypatch.setenv("CHAINRULE_KERNELS", "off")
    assert model.prepare().compiled_unroll is None
    monkeypatch.delenv("CHAINRULE_KERNELS")
    for other in (RecurrentLM(V, hidden_size=M), RecurrentLM(V, embedding_size=4, hidden_size=4), NETWORK().train()):
        assert other.prepare().compiled_unroll is None  # one-hot input, too narrow, in training
    hooked = NETWORK().eval()
    hooked.recurrent.register_forward_hook(lambda *_: None)
    assert hooked.prepare().compiled_unroll is None
