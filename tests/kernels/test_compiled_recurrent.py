"""Training of the recurrent layers in compiled loops: the values and gradients of the plain cells."""

from functools import partial

import pytest
import torch

from chainrule.kernels import _compiled, _recurrent
from chainrule.layers import GRU, LSTM, RNN

pytest.importorskip("numba")
from chainrule.kernels import _compiled_recurrent as loops

pytestmark = pytest.mark.kernel
B, T, N, M = 9, 6, 5, 37  # tiles of five and four rows; a last panel that laps over the one before
KINDS = {
    "lstm": partial(LSTM, N, M),
    "gru, reset after": partial(GRU, N, M),
    "gru, reset before": partial(GRU, N, M, reset_after=False),
    **{f: partial(RNN, N, M, nonlinearity=f) for f in ("tanh", "relu", "sigmoid", "identity")},
    "two layers": partial(GRU, N, M, 2),
    "both directions": partial(LSTM, N, M, bidirectional=True, bias=False),
}
LENGTHS = {"full": None, "unequal": torch.tensor([4, 0, 6, 2, 1, 6, 5, 6, 3])}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-6}  # of sums of terms of size one, relative to the largest


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """The names of the compiled loops that ran; they do not wait for work that repays loading them."""
    names, over_rows = [], loops._over_rows

    def recorded(loop, *arguments):
        names.append(loop.__name__)
        over_rows(loop, *arguments)

    monkeypatch.setattr(loops, "_over_rows", recorded)
    monkeypatch.setattr(_recurrent, "LEAST_MULTIPLICATIONS", 0)
    return names


def made(name, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return KINDS[name](**options).to(dtype)


def results(layer, lengths, order=1, symbols=False):
    """Outputs and last state, their gradients, and those of the gradients' squares."""
    torch.manual_seed(1)
    dtype = layer.weight_hh_l0.dtype
    x = torch.randint(N, (B, T)) if symbols else torch.randn(B, T, N, dtype=dtype, requires_grad=True)
    directions = layer.num_layers * (2 if layer.bidirectional else 1)
    state = [torch.randn(B, directions, M, dtype=dtype, requires_grad=True) for _ in range(1 + layer.has_cell)]
    output, last = layer(x, tuple(state) if layer.has_cell else state[0], lengths)
    found = [output, *(last if layer.has_cell else [last])]
    inputs = [*([] if symbols else [x]), *state, *layer.parameters()]
    loss = sum((part * torch.randn_like(part)).sum() for part in found)
    for remaining in range(order - 1, -1, -1):
        gradients = torch.autograd.grad(loss, inputs, create_graph=remaining > 0)
        found += gradients
        loss = sum(part.square().sum() for part in gradients)
    return found


def assert_close(fast, plain, dtype):
    for one, other in zip(fast, plain, strict=True):
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype] * scale)


def both(monkeypatch, run):
    fast = run()
    monkeypatch.setenv("CHAINRULE_KERNELS", "off")
    return fast, run()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", KINDS)
def test_values_and_gradients_are_those_of_the_cells(name, lengths, dtype, monkeypatch, runs):
    run = partial(results, made(name, dtype), LENGTHS[lengths], order=2 if dtype == torch.float64 else 1)
    fast, plain = both(monkeypatch, run)
    assert runs
    assert_close(fast, plain, dtype)


@pytest.mark.parametrize("name", KINDS)
def test_a_gradient_may_be_taken_twice_and_has_the_same_bits(name, runs):
    layer, x = made(name, torch.float32), torch.randn(B, T, N)
    output, _ = layer(x, None, LENGTHS["unequal"])
    first, second = (
        torch.autograd.grad(output.square().sum(), list(layer.parameters()), retain_graph=True) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert sum("back" in loop for loop in runs) == sum("back" not in loop for loop in runs) * 2


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", KINDS)
def test_threads_share_rows_and_change_no_bit(name, lengths, monkeypatch):
    layer = made(name, torch.float32)
    monkeypatch.setattr(loops, "_LEAST_ROWS", 2)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(results(layer, LENGTHS[lengths]))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["lstm", "gru, reset before", "tanh"])
def test_symbols_and_gradients_that_are_not_contiguous(name, monkeypatch, runs):
    fast, plain = both(monkeypatch, partial(results, made(name), None, symbols=True))
    assert_close(fast, plain, torch.float64)
    monkeypatch.delenv("CHAINRULE_KERNELS")
    layer, x = made(name), torch.randn(B, T, N, dtype=torch.float64)

    def expanded():
        return torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))

    assert_close(*both(monkeypatch, expanded), torch.float64)
    assert runs


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("name", ["lstm", "gru, reset after", "tanh", "both directions"])
def test_a_state_may_have_another_type(name, trains, monkeypatch):
    """numba and oneDNN raised errors that name internals."""
    layer, x = made(name, torch.float32), torch.randn(B, T, N)
    state = made(name).initial_state(B)

    def run():
        with torch.set_grad_enabled(trains):
            output, last = layer(x, state)
        return [output, *(last if layer.has_cell else [last])]

    fast, plain = both(monkeypatch, run)
    assert_close(fast, plain, torch.float32)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_not_a_number_is_seen(name, runs):
    x = torch.zeros(B, T, N)
    x[2, 1] = torch.nan
    output, _ = made(name, torch.float32)(x)
    assert runs
    hidden = output[..., :M]  # of a second direction, earlier elements
    assert hidden[2, 1:].isnan().all()
    assert not hidden[[0, 1, *range(3, B)]].isnan().any()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("rows", range(1, 15))
def test_a_product_is_the_plain_product(rows, dtype):
    wide = loops.panel_width(dtype)
    for size, depth in ((wide, 1), (2 * wide, 300), (3 * wide - 1, 7)):
        x, weight = torch.randn(rows, depth + 3, dtype=dtype)[:, 3:], torch.randn(size, depth, dtype=dtype)
        whole = torch.randn(rows, size + 5, dtype=dtype)
        out, expected = whole.clone(), whole.clone()
        expected[:, 2 : size + 2] += x @ weight.t()
        loops.add_product(x.numpy(), loops.panels(weight).numpy(), out.numpy()[:, 2 : size + 2])
        torch.testing.assert_close(out, expected, rtol=0, atol=TOLERANCE[dtype] * 40)


@pytest.mark.parametrize("name", ["lstm", "gru, reset after", "gru, reset before", "relu"])
def test_a_broken_product_is_seen(name, monkeypatch):
    panels = loops.panels
    monkeypatch.setattr(loops, "panels", lambda weight: panels(weight).roll(1, 0))
    with pytest.raises(AssertionError, match="not close"):
        assert_close(*both(monkeypatch, partial(results, made(name), None)), torch.float64)


def test_loops_run_where_the_work_repays_loading_them(monkeypatch):
    weight = torch.zeros(4 * 64, 64, requires_grad=True)
    assert _recurrent.training_loops(weight, [8, 8]) is loops
    monkeypatch.setattr(_recurrent, "LEAST_MULTIPLICATIONS", 8 * 2 * weight.numel() + 1)
    assert _recurrent.training_loops(weight, [8, 8]) is None
    assert _recurrent.training_loops(weight, [8, 8, 1]) is loops


def test_they_do_not_run_elsewhere(monkeypatch, runs):
    layer, x = made("lstm", torch.float32), torch.randn(B, T, N)
    with torch.no_grad():
        layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)
    torch.func.vmap(lambda row: layer(row[None])[0])(x)
    layer.requires_grad_(False)(x)
    layer.requires_grad_(True)
    narrow = GRU(N, loops.panel_width(torch.float32) - 1)
    narrow(x)[0].sum().backward()
    monkeypatch.setattr(_compiled, "_imported", lambda: None)
    layer(x)
    assert not runs
