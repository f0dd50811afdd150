"""The recurrent layers against torch.nn, against their written equations, and against themselves step by step."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from chainrule.kernels import enabled
from chainrule.layers import GRU, LSTM, RNN, Recurrent

pytestmark = pytest.mark.usefixtures("float64")

B, T, N, M = 5, 7, 3, 4
TOLERANCE = 1e-10  # float64; sums of some hundred terms of size one
KINDS = {
    "lstm": lambda **kw: LSTM(N, M, **kw),
    "gru-after": lambda **kw: GRU(N, M, reset_after=True, **kw),
    "gru-before": lambda **kw: GRU(N, M, reset_after=False, **kw),
    "tanh": lambda **kw: RNN(N, M, nonlinearity="tanh", **kw),
    "relu": lambda **kw: RNN(N, M, nonlinearity="relu", **kw),
    "sigmoid": lambda **kw: RNN(N, M, nonlinearity="sigmoid", **kw),
    "identity": lambda **kw: RNN(N, M, nonlinearity="identity", **kw),
}
IN_TORCH = ("lstm", "gru-after", "tanh", "relu")
LENGTHS = {
    "full": None,
    "unequal": torch.tensor([7, 3, 0, 5, 7]),
    "empty": torch.zeros(B, dtype=torch.long),
    "none reaches the end": torch.tensor([1, 1, 2, 1, 0]),
    "full or empty": torch.tensor([7, 0, 7, 7, 0]),
}


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def random_state(layer):
    state = tuple(torch.randn_like(part).requires_grad_() for part in parts(layer.initial_state(B)))
    return state if layer.has_cell else state[0]


def by_steps(layer, x, state, lengths):
    """The layer as its cell, one step at a time, rows held at their ends: autograd gives the gradients."""
    outputs = []
    for t in range(x.shape[1]):
        y, new = layer.step(x[:, t], state)
        running = torch.ones(B, dtype=torch.bool) if lengths is None else lengths > t
        outputs.append(torch.where(running[:, None], y, 0.0))
        held = [torch.where(running[:, None, None], n, o) for n, o in zip(parts(new), parts(state), strict=True)]
        state = tuple(held) if layer.has_cell else held[0]
    return torch.stack(outputs, 1), state


def values_and_gradients(output, state, inputs, order=1):
    """Everything that comes out, and the gradient of a loss that weighs every output and every part of the state.

    Of order 2, also the gradient of that gradient's squared length.
    """
    torch.manual_seed(1)
    loss = sum((value * torch.randn(value.shape)).sum() for value in (output, *parts(state)))
    found = [output, *parts(state)]
    for last in range(order, 0, -1):
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True, create_graph=last > 1)
        found += [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, gradients, strict=True)]
        loss = sum(g.square().sum() for g in gradients if g is not None)
    return found


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("lengths", "bias", "symbols"),
    [*((lengths, True, False) for lengths in LENGTHS), ("full", False, True), ("unequal", False, True)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_written_out_bptt_equals_autograd_through_the_cell(kind, lengths, bias, symbols):
    layer = KINDS[kind](num_layers=2, bias=bias, backend="bptt")
    x = torch.randint(N, (B, T)) if symbols else torch.randn(B, T, N, requires_grad=True)
    state = random_state(layer)
    inputs = [*layer.parameters(), *parts(state), *([] if symbols else [x])]
    order = 1 if lengths == "empty" else 2  # whose gradient is a constant
    whole = values_and_gradients(*layer(x, state, LENGTHS[lengths]), inputs, order)
    stepped = values_and_gradients(*by_steps(layer, x, state, LENGTHS[lengths]), inputs, order)
    assert_equal(whole, stepped)


@pytest.mark.parametrize(
    ("lengths", "bidirectional"), [*((lengths, False) for lengths in LENGTHS), ("full", True), ("unequal", True)]
)
@pytest.mark.parametrize("kind", IN_TORCH)
def test_both_backends_agree(kind, lengths, bidirectional):
    layer = KINDS[kind](num_layers=2, bidirectional=bidirectional)
    x = torch.randn(B, T, N, requires_grad=True)
    state = random_state(layer)
    results = []
    for backend in ("bptt", "vendor"):
        layer.backend = backend
        inputs = [*layer.parameters(), *parts(state), x]
        results.append(values_and_gradients(*layer(x, state, LENGTHS[lengths]), inputs))
    assert_equal(*results)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LSTM, nn.LSTM),
        (GRU, nn.GRU),
        (RNN, nn.RNN),
    ],
)
def test_state_dicts_load_to_and_from_torch(ours, theirs, bidirectional):
    layer = ours(N, M, num_layers=2, bidirectional=bidirectional, backend="bptt")
    peer = theirs(N, M, num_layers=2, bidirectional=bidirectional, batch_first=True)
    x = torch.randn(B, T, N)
    peer.load_state_dict(layer.state_dict())
    expected, last = peer(x)
    output, state = layer(x)
    torch.testing.assert_close(output, expected, rtol=0, atol=TOLERANCE)
    for part, theirs_last in zip(parts(state), parts(last), strict=True):
        torch.testing.assert_close(part, theirs_last.transpose(0, 1), rtol=0, atol=TOLERANCE)
    fresh = theirs(N, M, num_layers=2, bidirectional=bidirectional, batch_first=True)
    layer.load_state_dict(fresh.state_dict())
    torch.testing.assert_close(layer(x)[0], fresh(x)[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["lstm", "gru-after", "gru-before", "sigmoid"])
def test_the_backward_direction_starts_at_each_rows_own_end(kind):
    layer = KINDS[kind](bidirectional=True, backend="bptt")
    x, lengths = torch.randn(B, T, N), LENGTHS["unequal"]
    output, state = layer(x, None, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(output[row, length:], torch.zeros(T - length, 2 * M))
        if length:
            alone, last = layer(x[row : row + 1, :length])
            torch.testing.assert_close(output[row, :length], alone[0], rtol=0, atol=TOLERANCE)
            for part, own in zip(parts(state), parts(last), strict=True):
                torch.testing.assert_close(part[row], own[0], rtol=0, atol=TOLERANCE)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    lengths=st.lists(st.integers(0, T), min_size=B, max_size=B),
    cut=st.integers(0, T),
)
def test_what_stands_past_the_end_is_never_read_and_chunks_continue(kind, lengths, cut):
    torch.set_default_dtype(torch.float64)
    layer, x = KINDS[kind](num_layers=2), torch.randn(B, T, N)
    lengths = torch.tensor(lengths)
    output, state = layer(x, None, lengths)
    past = torch.arange(T) >= lengths[:, None]
    again, state_again = layer(x.masked_fill(past[..., None], torch.nan), None, lengths)
    assert torch.equal(output, again)
    assert all(torch.equal(a, b) for a, b in zip(parts(state), parts(state_again), strict=True))
    first, carried = layer(x[:, :cut], None, lengths.clamp(max=cut))
    second, last = layer(x[:, cut:], carried, (lengths - cut).clamp(min=0))
    torch.testing.assert_close(torch.cat([first, second], 1), output, rtol=0, atol=TOLERANCE)
    for a, b in zip(parts(last), parts(state), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE)


def test_the_two_gru_conventions_are_different_functions_of_the_same_weights():
    after, before = KINDS["gru-after"](), KINDS["gru-before"]()
    before.load_state_dict(after.state_dict())
    x = torch.randn(B, T, N)
    assert (after(x)[0] - before(x)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("reset_after", [True, False])
def test_gru_equals_its_written_equations(reset_after):
    layer = GRU(N, M, reset_after=reset_after, backend="bptt")
    w_ih, w_hh, b_ih, b_hh = layer.all_weights[0]
    x, h = torch.randn(B, T, N), torch.randn(B, M)
    output, _ = layer(x, h[:, None])
    (w_ir, w_iz, w_in), (w_hr, w_hz, w_hn) = w_ih.chunk(3), w_hh.chunk(3)
    (b_ir, b_iz, b_in), (b_hr, b_hz, b_hn) = b_ih.chunk(3), b_hh.chunk(3)
    for t in range(T):
        r = torch.sigmoid(x[:, t] @ w_ir.T + b_ir + h @ w_hr.T + b_hr)
        z = torch.sigmoid(x[:, t] @ w_iz.T + b_iz + h @ w_hz.T + b_hz)
        reset = r * (h @ w_hn.T + b_hn) if reset_after else (r * h) @ w_hn.T + b_hn
        h = (1 - z) * torch.tanh(x[:, t] @ w_in.T + b_in + reset) + z * h
        torch.testing.assert_close(output[:, t], h, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_one_hot_vectors(kind):
    layer, x = KINDS[kind](bidirectional=True), torch.randint(N, (B, T))
    dense = nn.functional.one_hot(x, N).to(torch.float64)
    torch.testing.assert_close(layer(x)[0], layer(dense)[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_autocast_stays_near_float32_and_keeps_float32_states(kind):
    layer = KINDS[kind]().float()
    x = torch.randn(B, T, N, dtype=torch.float32)
    expected, _ = layer(x)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = layer(x)
    output.float().sum().backward()
    assert all(part.dtype == torch.float32 for part in parts(state))
    # bfloat16 keeps 8 bits: products differ by 2^-8 of their size, over 7 steps
    torch.testing.assert_close(output.float(), expected, rtol=0.1, atol=0.1)
    for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0.2, atol=0.05 * gradient.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
def test_steps_under_bfloat16_autocast_stay_near_float32_and_keep_float32_states(kind):
    layer = KINDS[kind]().float()
    x = torch.randn(B, T, N, dtype=torch.float32)
    expected, _ = layer(x)
    state = layer.initial_state(B)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for t in range(T):
            output, state = layer.step(x[:, t], state)
            assert all(part.dtype == torch.float32 for part in parts(state))
            torch.testing.assert_close(output.float(), expected[:, t], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_vendors_lstm_runs_under_autocast_whatever_onednn_refuses(dtype, refused, monkeypatch):
    if refused:
        monkeypatch.setattr("chainrule.kernels._products._onednn_runs_lstm", lambda dtype: False)
    layer, x = KINDS["lstm"](backend="vendor").float(), torch.randn(B, T, N, dtype=torch.float32)
    expected, _ = layer(x)
    with torch.autocast("cpu", dtype):
        output, _ = layer(x)
    assert torch.backends.mkldnn.enabled
    torch.testing.assert_close(output.float(), expected, rtol=0.1, atol=0.1)


def test_dropout_acts_between_layers_in_training_only():
    layer = KINDS["gru-after"](num_layers=2, dropout=0.5)
    x = torch.randn(B, T, N)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    single = KINDS["gru-after"](dropout=0.5)
    assert torch.equal(single(x)[0], single(x)[0])


@pytest.mark.skipif(not enabled(), reason="kernels are off")
@pytest.mark.parametrize("kind", KINDS)
def test_the_written_out_gradient_fails_when_a_step_is_dropped(kind, monkeypatch):
    """The comparison above can fail: lose the gradient that arrives from the next step, and it does."""
    from chainrule.kernels._bptt import Product

    layer = KINDS[kind](backend="bptt")
    x, state = torch.randn(B, T, N), random_state(layer)
    stepped = values_and_gradients(*by_steps(layer, x, state, None), [layer.weight_hh_l0])
    output, last = layer(x, state)
    monkeypatch.setattr(Product, "into", lambda self, h, out: out.zero_())
    monkeypatch.setattr(Product, "add", lambda self, addend, h, out: out.zero_())
    whole = values_and_gradients(output, last, [layer.weight_hh_l0])
    with pytest.raises(AssertionError):
        assert_equal(whole, stepped)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RNN(N, M, nonlinearity="swish"), "nonlinearity: expected one of tanh, relu, sigmoid, identity"),
        (lambda: LSTM(N, M, backend="cudnn"), "backend: expected"),
        (lambda: LSTM(N, M, batch_first=False), "batch_first"),
        (lambda: GRU(N, M, reset_after=False, backend="vendor")(torch.zeros(B, T, N)), "no vendor kernel computes"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N + 1)), "x: expected features"),
        (lambda: GRU(N, M)(torch.zeros(T, N)), "x: expected features"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N), torch.zeros(B, 2, M)), "state: expected a tensor of shape"),
        (lambda: LSTM(N, M)(torch.zeros(B, T, N), torch.zeros(B, 1, M)), "state: expected a pair"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N), None, torch.tensor([1, 2])), "lengths: expected 5 integers"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N), None, torch.full((B,), T + 1)), "lengths: expected values in"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N), torch.zeros(1, B, M)), "torch.nn's layout, bring it here with transp"),
        (lambda: GRU(N, M)(torch.zeros(B, T, N), None, [1, 2, 3, 4, 5]), "lengths: expected a tensor.*torch.tensor"),
        (lambda: GRU(N, M)(torch.zeros(B, T, dtype=torch.bool)), r"torch.bool: convert them with x.long\(\)"),
        (lambda: GRU(N, M)([[0, 1]]), "x: expected a tensor, got list: make it one with torch.as_tensor"),
        (
            lambda: GRU(N, M)(nn.utils.rnn.pack_sequence([torch.zeros(T, N)])),
            "x: expected a tensor, got PackedSequence: pad it, and give lengths",
        ),
        (lambda: GRU(N, M, bidirectional=True).step(torch.zeros(B, N), None), "bidirectional"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_symbols_may_come_in_any_type_of_integers(dtype):
    layer, x = KINDS["lstm"](), torch.randint(N, (B, T))
    assert torch.equal(layer(x.to(dtype))[0], layer(x)[0])
    assert torch.equal(layer.step(x[:, 0].to(dtype), layer.initial_state(B))[0], layer(x)[0][:, 0])
    prepared, _ = layer.prepare()(x[:, 0].to(dtype), layer.initial_state(B))
    assert torch.equal(prepared, layer.prepare()(x[:, 0], layer.initial_state(B))[0])


def test_recurrent_is_a_torch_rnn_module_with_its_parameter_names():
    assert issubclass(Recurrent, nn.RNNBase)
    assert list(LSTM(N, M, 2, bidirectional=True).state_dict()) == list(
        nn.LSTM(N, M, 2, bidirectional=True).state_dict()
    )


def test_the_fast_tanh_is_tanh():
    from chainrule.kernels._bptt import tanh

    a = torch.linspace(-100, 100, 200001, dtype=torch.float32)
    torch.testing.assert_close(tanh(a, torch.empty_like(a)), a.tanh(), rtol=0, atol=2e-7)
    torch.testing.assert_close(tanh(a.double(), torch.empty(a.shape)), a.double().tanh(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", IN_TORCH)
def test_the_automatic_choice_changes_no_value(kind):
    layer = KINDS[kind]().float()
    symbols = torch.randint(N, (B, T))
    for x in (symbols, nn.functional.one_hot(symbols, N).float()):
        layer.backend = "bptt"
        expected, _ = layer(x)
        layer.backend = "auto"
        with_gradient, _ = layer(x)
        with torch.no_grad():
            without, _ = layer(x)
        for output in (with_gradient, without):
            torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)  # float32, sums in another order


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_laid_out_once_is_the_plain_product(dtype, monkeypatch):
    from chainrule.kernels import _bptt as bptt

    weight, x = torch.randn(24, 40, dtype=dtype), torch.randn(6, 40, dtype=dtype)
    addend, results = torch.randn(6, 24, dtype=torch.float32), {}
    monkeypatch.setattr(bptt, "LEAST_FLOAT32", 0)
    for packs in (bptt.packs(dtype), False):  # bfloat16 is laid out only where the processor has the instructions
        monkeypatch.setattr(bptt, "packs", lambda dtype, packs=packs: packs)
        for rows in (6, 2):  # fewer rows than it was laid out for: shorter sequences have ended
            times = bptt.Product(weight, 6, 8, torch.float32)
            sums = times.add(addend[:rows], x[:rows], out=torch.empty(rows, 24, dtype=torch.float32))
            alone = times.into(x[:rows], out=torch.empty(rows, 24, dtype=torch.float32))
            results[packs, rows] = sums, alone
    expected = x.double() @ weight.double().t()
    tolerance = 1e-5 if dtype == torch.float32 else 0.2  # bfloat16 rounds sums of size ten to multiples of 1/16
    for (_, rows), (sums, alone) in results.items():
        torch.testing.assert_close(sums.double(), addend[:rows].double() + expected[:rows], rtol=0, atol=tolerance)
        torch.testing.assert_close(alone.double(), expected[:rows], rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_processor_whose_kernel_refuses_the_type_takes_plain_products(dtype, monkeypatch):
    from chainrule.kernels import _bptt as bptt

    def refused(weight, rows):
        raise RuntimeError("mkldnn_reorder_linear_weight: bf16 path needs the cpu support avx512bw")

    monkeypatch.setattr(bptt, "LEAST_FLOAT32", 0)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refused)
    bptt.packs.cache_clear()
    weight, x = torch.randn(24, 40, dtype=dtype), torch.randn(6, 40, dtype=dtype)
    result = bptt.Product(weight, 6, 8, torch.float32).into(x, out=torch.empty(6, 24, dtype=torch.float32))
    bptt.packs.cache_clear()
    torch.testing.assert_close(result, (x @ weight.t()).float())


@pytest.mark.parametrize("kind", KINDS)
def test_long_float32_rows_take_laid_out_products_and_agree_with_float64(kind, monkeypatch):
    from chainrule.kernels import _bptt as bptt

    monkeypatch.setattr(bptt, "LEAST_FLOAT32", 0)
    layer = KINDS[kind](backend="bptt").float()
    x, lengths = torch.randn(B, 20, N, dtype=torch.float32), torch.tensor([20, 3, 0, 11, 20])
    results = []
    for double in (False, True):
        layer = layer.double() if double else layer
        layer.zero_grad()
        output, _ = layer(x.double() if double else x, None, lengths)
        output.square().sum().backward()
        results.append([output.double(), *(parameter.grad.double() for parameter in layer.parameters())])
    for single, exact in zip(*results, strict=True):
        torch.testing.assert_close(single, exact, rtol=1e-4, atol=1e-4)
