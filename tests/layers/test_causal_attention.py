"""Causal attention against the equation, torch.nn, and itself in chunks, in steps and with prepared steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from chainrule.kernels import _cached_steps as cached_steps
from chainrule.kernels import enabled
from chainrule.layers import CausalAttention, scaled_dot_product
from chainrule.layers import _causal_attention as causal_attention
from chainrule.layers._positions import distance_slopes, rotate, rotations
from chainrule.state import flatten, select

SIZE = 8


def attention(window=4, position="rotary", num_kv_heads=2, num_heads=4, dtype=torch.float64):
    torch.manual_seed(0)
    layer = CausalAttention(SIZE, num_heads, window, num_kv_heads=num_kv_heads, position=position).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():  # far from a uniform softmax
            parameter.normal_()
    return layer


def by_hand(layer, row):
    """y of one row (T, D), written out query by query."""
    size, heads, groups = layer.head_size, layer.num_heads, layer.num_kv_heads
    projected = (row @ layer.in_proj_weight.t() + layer.in_proj_bias).view(len(row), -1, size)
    outputs = []
    for t in range(len(row)):
        read = []
        for head in range(heads):
            group = head // (heads // groups)
            scores, values = [], []
            for s in range(max(0, t - layer.window + 1), t + 1):
                query, key = projected[t, head], projected[s, heads + group]
                if layer.position == "rotary":
                    query = rotate(query, rotations(torch.tensor(t), size, query))
                    key = rotate(key, rotations(torch.tensor(s), size, key))
                score = query @ key / size**0.5
                if layer.position == "alibi":
                    score = score - distance_slopes(heads)[head] * (t - s)
                scores.append(score)
                values.append(projected[s, heads + groups + group])
            read.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        outputs.append(torch.cat(read))
    return torch.stack(outputs) @ layer.out_proj.weight.t() + layer.out_proj.bias


def require_chunks_like_whole(layer, x, sizes, tolerance):
    """`forward` in chunks, `step`, and prepared steps from every state again, against one whole chunk."""
    whole, last = layer(x)
    state, parts = layer.initial_state(len(x)), []
    for chunk in x.split(sizes, 1):
        part, state = layer(chunk, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=tolerance)
    for name, leaf in flatten(state)[0].items():
        torch.testing.assert_close(leaf, flatten(last)[0][name], rtol=0, atol=tolerance)
    with torch.no_grad():
        for step in (layer.step, layer.prepare()):
            kept = [layer.initial_state(len(x))]
            for t in range(x.shape[1]):
                y, state = step(x[:, t], kept[-1])
                torch.testing.assert_close(y, whole[:, t], rtol=0, atol=tolerance)
                kept.append(state)
            rows = torch.arange(len(x)).flip(0)
            for t in range(x.shape[1]):  # old states go on as they did, and so do their rows in another order
                torch.testing.assert_close(step(x[:, t], kept[t])[0], whole[:, t], rtol=0, atol=tolerance)
                turned = step(x[rows, t], select(kept[t], rows))[0]
                torch.testing.assert_close(turned, whole[rows, t], rtol=0, atol=tolerance)


def require_rows_like_alone(layer, x, first, second, tolerance):
    """Rows of unequal lengths in two chunks and two steps, each against the row alone."""
    rows, (left, right) = len(x), x.split(x.shape[1] // 2, 1)
    spoiled = [part.clone() for part in (left, right)]
    for part, lengths in zip(spoiled, (first, second), strict=True):
        part[torch.arange(part.shape[1]) >= lengths.unsqueeze(1)] = torch.nan
    y1, state = layer(spoiled[0], None, first)
    y2, state = layer(spoiled[1], state, second)
    extra = torch.randn(rows, 2, x.shape[2], dtype=x.dtype)
    with torch.no_grad():
        step = layer.prepare()
        a, after = step(extra[:, 0], state)
        b, _ = step(extra[:, 1], after)
    plain = layer(extra, state)[0]
    for row in range(rows):
        n, m = int(first[row]), int(second[row])
        alone = layer(torch.cat([left[row, :n], right[row, :m], extra[row]]).unsqueeze(0))[0][0]
        found = torch.cat([y1[row, :n], y2[row, :m], a[row : row + 1], b[row : row + 1]])
        torch.testing.assert_close(found, alone, rtol=0, atol=tolerance)
        torch.testing.assert_close(plain[row], alone[-2:], rtol=0, atol=tolerance)
        assert not y1[row, n:].any()
        assert not y2[row, m:].any()


@pytest.mark.parametrize("position", ["rotary", "alibi", None])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 3, 99])
def test_the_output_is_that_of_the_equation(position, num_kv_heads, window):
    layer, x = attention(window, position, num_kv_heads), torch.randn(2, 6, SIZE, dtype=torch.float64)
    expected = torch.stack([by_hand(layer, row) for row in x])
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-12)


@settings(max_examples=20)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    window=st.integers(1, 9),
    position=st.sampled_from(["rotary", "alibi", None]),
    num_kv_heads=st.sampled_from([1, 2, 4]),
    dtype=st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]),
    rows=st.sampled_from([1, 3]),  # a single row is read by NumPy
)
def test_any_chunking_steps_and_prepared_steps_give_the_whole_from_any_state(
    sizes, window, position, num_kv_heads, dtype, rows
):
    dtype, tolerance = dtype
    layer = attention(window, position, num_kv_heads)
    layer = layer.to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.5)  # outputs of size 1, to which the tolerance of float32 belongs
    require_chunks_like_whole(layer, torch.randn(rows, sum(sizes), SIZE, dtype=dtype), sizes, tolerance)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    window=st.integers(1, 9),
    position=st.sampled_from(["rotary", "alibi", None]),
    num_kv_heads=st.sampled_from([1, 2, 4]),
)
def test_rows_of_unequal_lengths_go_on_as_each_would_alone(lengths, window, position, num_kv_heads):
    """One row among them, and rows that are padded alike: no slot of their cache may be read that holds nothing."""
    layer = attention(window, position, num_kv_heads)
    x = torch.randn(len(lengths), 8, SIZE, dtype=torch.float64)
    require_rows_like_alone(layer, x, *torch.tensor(lengths).unbind(1), 1e-12)


def test_lengths_of_few_bits_are_counted_beyond_their_range():
    layer, x = attention(200), torch.randn(2, 400, SIZE, dtype=torch.float64)
    with torch.no_grad():
        whole = layer(x[:, :350])[0]
        state = layer(x[:, :150])[1]
        after = layer(x[:, 150:350], state, torch.tensor([150, 199], dtype=torch.uint8))[1]
        y, _ = layer.step(torch.stack([x[0, 300], x[1, 349]]), after)
    torch.testing.assert_close(y, torch.stack([whole[0, 300], whole[1, 349]]), rtol=0, atol=1e-12)


def test_a_prepared_step_takes_states_of_any_mode_and_no_rows():
    layer, x = attention(9), torch.randn(1, 4, SIZE, dtype=torch.float64)
    whole, state = layer(x[:, :3])  # with gradients
    expected = layer(x)[0][:, 3]
    with torch.no_grad():
        torch.testing.assert_close(layer.prepare()(x[:, 3], state)[0], expected, rtol=0, atol=1e-12)
    step = layer.prepare()
    with torch.inference_mode():
        _, state = step(x[:, 0], layer.initial_state(1))
    with torch.no_grad():
        torch.testing.assert_close(step(x[:, 1], state)[0], whole[:, 1], rtol=0, atol=1e-12)
    assert layer.prepare()(x[:0, 0], layer.initial_state(0))[0].shape == (0, SIZE)


def test_a_prepared_step_crosses_the_end_of_its_buffer(monkeypatch):
    monkeypatch.setattr(cached_steps, "ROOM", 3)
    for window, rows in ((2, 1), (5, 2), (30, 1), (30, 2)):
        require_chunks_like_whole(attention(window), torch.randn(rows, 20, SIZE, dtype=torch.float64), [20], 1e-12)


def top_left(time, cached, window=None, device=None):
    return torch.ones(time, cached + time, dtype=torch.bool, device=device).tril()


def one_too_few(self, keys, values, state, time, lengths):
    kept = max(min(self.window - 2, keys.shape[2]), 0)
    begin = keys.shape[2] - kept
    return {"keys": keys[:, :, begin:], "values": values[:, :, begin:], "count": state["count"] + time}


class NeverCopied(cached_steps.CausalAttentionSteps):
    def _adopt(self, state):
        if self._last is None:
            super()._adopt(state)


def all_rows_as_long(after):
    return lambda self, keys, values, state, time, lengths: after(self, keys, values, state, time, None)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "window", "chunks"),
    [
        (causal_attention, "visible_keys", top_left, 9, [3, 3]),
        (CausalAttention, "_after", one_too_few, 4, [3, 3]),
        pytest.param(
            *(causal_attention, "CausalAttentionSteps", NeverCopied, 4, [6]),
            marks=pytest.mark.skipif(not enabled(), reason="kernels are off"),
        ),
    ],
)
def test_the_checks_see_a_wrong_mask_and_a_wrong_cache(monkeypatch, owner, name, broken, window, chunks):
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        require_chunks_like_whole(attention(window), torch.randn(2, 6, SIZE, dtype=torch.float64), chunks, 1e-12)


def test_the_checks_see_a_state_that_ignores_lengths(monkeypatch):
    monkeypatch.setattr(CausalAttention, "_after", all_rows_as_long(CausalAttention._after))
    layer = attention(4)
    x, lengths = torch.randn(2, 8, SIZE, dtype=torch.float64), torch.tensor([4, 2])
    with pytest.raises(AssertionError):
        require_rows_like_alone(layer, x, lengths, lengths, 1e-12)


def test_weights_move_to_torch_and_back_and_give_the_same():
    theirs = nn.MultiheadAttention(SIZE, 4, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    ours = CausalAttention(SIZE, 4, window=9, position=None).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 6, SIZE, dtype=torch.float64)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(ours(x)[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.attended(x), weights, rtol=0, atol=1e-12)
    other = nn.MultiheadAttention(SIZE, 4, batch_first=True).double()
    other.load_state_dict(ours.state_dict())
    torch.testing.assert_close(other(x, x, x, attn_mask=hidden)[0], expected, rtol=0, atol=1e-12)


def test_a_stream_keeps_the_last_of_its_elements_and_no_more():
    layer, state = attention(window=4), None
    for _ in range(5):
        _, state = layer(torch.randn(2, 3, SIZE, dtype=torch.float64), state)
    assert state["keys"].shape == (2, 2, 3, 2)
    assert state["count"].tolist() == [15, 15]


@pytest.mark.skipif(not enabled(), reason="kernels are off")
@pytest.mark.parametrize("rows", [1, 2])
def test_a_prepared_stream_moves_its_buffer_seldom(rows):
    layer = attention(window=200)
    step, state, buffers = layer.prepare(), layer.initial_state(rows), set()
    for _ in range(1000):
        _, state = step(torch.zeros(rows, SIZE, dtype=torch.float64), state)
        memory = step._buffer.keys.untyped_storage()
        buffers.add(memory.data_ptr())
        assert memory.nbytes() <= rows * 400 * 2 * 2 * 8
        assert memory.data_ptr() <= state["keys"].data_ptr() < memory.data_ptr() + memory.nbytes()  # not copied
    assert state["keys"].shape[2] == 199
    assert len(buffers) <= 8


def test_gradients_reach_the_past_through_a_carried_state():
    layer, x = attention(), torch.randn(2, 6, SIZE, dtype=torch.float64, requires_grad=True)
    _, state = layer(x[:, :4])
    y, _ = layer(x[:, 4:], state)
    (carried,) = torch.autograd.grad(y.sum(), x)
    (whole,) = torch.autograd.grad(layer(x)[0][:, 4:].sum(), x)
    torch.testing.assert_close(carried, whole, rtol=0, atol=1e-12)
    assert carried[:, 1:4].any()  # the window's oldest
    assert not carried[:, 0].any()


def test_the_weights_of_a_chunk_sum_to_one_over_what_may_be_read():
    layer, x = attention(window=3), torch.randn(2, 5, SIZE, dtype=torch.float64)
    _, state = layer(x[:, :3])
    weights = layer.attended(x[:, 3:], state)
    assert weights.shape == (2, 4, 2, 4)
    torch.testing.assert_close(weights.sum(3), torch.ones(2, 4, 2, dtype=torch.float64))
    assert not weights[:, :, 0, 3].any()
    assert not weights[:, :, 1, 0].any()


def test_gradients_of_each_row_at_once_are_those_of_each_row():
    layer, x = attention(), torch.randn(3, 5, SIZE, dtype=torch.float64)

    def loss(row):
        return layer(row.unsqueeze(0))[0].square().sum()

    at_once = torch.func.vmap(torch.func.grad(loss))(x)
    alone = torch.stack([torch.autograd.functional.jacobian(loss, row) for row in x])
    torch.testing.assert_close(at_once, alone, rtol=0, atol=1e-10)


@pytest.mark.skipif(not enabled(), reason="kernels are off")
def test_a_prepared_stream_records_no_gradients():
    layer = attention()
    step, state = layer.prepare(), layer.initial_state(2)
    for _ in range(3):
        y, state = step(torch.randn(2, SIZE, dtype=torch.float64, requires_grad=True), state)
    assert not y.requires_grad
    assert not state["keys"].requires_grad


def test_half_precision_and_full_continue_from_each_other():
    layer, x = attention(dtype=torch.float32), torch.randn(2, 5, SIZE)
    _, state = layer(x[:, :3])
    with torch.autocast("cpu", torch.bfloat16):
        y, state = layer(x[:, 3:], state)
    assert y.dtype == state["keys"].dtype == torch.bfloat16
    stepped, after = layer.prepare()(torch.randn(2, SIZE), state)
    assert stepped.dtype == after["keys"].dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_size": 6, "num_heads": 4, "window": 3}, "model_size: expected a multiple of num_heads, got 6"),
        ({"model_size": 8, "num_heads": 4, "window": 0}, "window: expected an integer >= 1"),
        ({"model_size": 8, "num_heads": 4, "window": 3, "num_kv_heads": 3}, "num_kv_heads: expected a divisor"),
        ({"model_size": 8, "num_heads": 4, "window": 3, "position": "learned"}, "position: expected one of rotary"),
        ({"model_size": 9, "num_heads": 3, "window": 3}, "rotary positions need an even number"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        CausalAttention(**arguments)


def test_a_state_of_another_layer_is_refused():
    layer, x = attention(window=3), torch.zeros(2, 2, SIZE, dtype=torch.float64)
    _, longer = attention(window=9)(torch.zeros(2, 5, SIZE, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"state: expected keys and values \(2, 2, up to 2, 2\)"):
        layer(x, longer)
    with pytest.raises(ValueError, match="state: expected"):
        layer(x, torch.zeros(2))


def test_heads_that_share_a_key_read_no_rows():
    assert attention()(torch.zeros(0, 1, SIZE, dtype=torch.float64))[0].shape == (0, 1, SIZE)


def test_a_transformed_pass_makes_its_mask_where_its_queries_are():
    x = torch.empty(1, 1, 3, 2, device="meta")
    assert torch.vmap(lambda x: scaled_dot_product(x, x, x, causal=True))(x.unsqueeze(0)).is_meta


@pytest.mark.parametrize(("window", "position"), [(1, None), (2, "rotary"), (5, "alibi"), (40, "rotary")])
def test_long_chunks_in_bands_are_the_masked_scores(monkeypatch, position, window):
    layer = attention(window, position)
    x = torch.randn(2, 6 * window + 3, SIZE, dtype=torch.float64, requires_grad=True)
    behind = torch.randn(2, max(window // 2, 1), SIZE, dtype=torch.float64)
    found = []
    for windows in (causal_attention._BANDED, 10**9):
        monkeypatch.setattr(causal_attention, "_BANDED", windows)
        state = layer(behind)[1]
        outputs = [layer(x)[0], layer(x, state)[0]]
        found.append([*outputs, *torch.autograd.grad(sum(y.square().sum() for y in outputs), x)])
    for banded, masked in zip(*found, strict=True):
        torch.testing.assert_close(banded, masked, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not enabled(), reason="kernels are off")
def test_long_chunks_make_no_scores_of_all_pairs(monkeypatch):
    monkeypatch.setattr(causal_attention, "scaled_dot_product", None)
    layer, x = attention(window=4), torch.randn(2, 40, SIZE, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0][0], by_hand(layer, x[0]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_training_in_bfloat16_computes_attention_by_plain_products(monkeypatch, masked):
    queries, keys, values = (torch.randn(2, 2, 6, 4, requires_grad=True) for _ in range(3))
    mask = torch.rand(6, 6).tril().fill_diagonal_(1) > 0.5 if masked else None
    expected = scaled_dot_product(queries, keys, values, mask, causal=not masked)
    gradients = torch.autograd.grad(expected.square().sum(), (queries, keys, values))
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", None)  # torch's backward pass is slow there
    halves = [x.detach().bfloat16().requires_grad_() for x in (queries, keys, values)]
    found = scaled_dot_product(*halves, mask, causal=not masked)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)
    for gradient, half in zip(gradients, torch.autograd.grad(found.float().square().sum(), halves), strict=True):
        torch.testing.assert_close(half.float(), gradient, rtol=0.1, atol=0.2)
