"""Linear attention beside the matrix of all weights, which it never makes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import LinearAttention, sum_rule
from chainrule.layers._linear_attention import sum_rule_step

pytestmark = pytest.mark.usefixtures("float64")

B, H, T, D = 2, 3, 13, 4
TOLERANCE = 1e-12  # float64; the same sums in another order


def weights_of_all_pairs(log_decay):
    """The decay from step j to step i, product by product: (..., T, T)."""
    time = log_decay.shape[-1]
    matrix = torch.zeros(*log_decay.shape, time)
    for i in range(time):
        for j in range(i + 1):
            matrix[..., i, j] = log_decay[..., j + 1 : i + 1].exp().prod(-1)
    return matrix


@given(st.integers(1, 20), st.floats(0.01, 60), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_the_sum_rule_is_its_written_sum_from_a_memory_of_any_sign(chunk_size, strongest, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, B, H, T, D, generator=generator).unbind()
    log_decay = -strongest * torch.rand(B, H, T, generator=generator)
    state = torch.randn(B, H, D, D, generator=generator)
    o, last = sum_rule(q, k, v, log_decay, state, chunk_size)
    within = ((q @ k.mT) * weights_of_all_pairs(log_decay)) @ v
    from_start = log_decay.cumsum(-1).exp().unsqueeze(-1)
    torch.testing.assert_close(o, within + from_start * (q @ state), rtol=0, atol=1e-11)
    for t in range(T):
        _, state = sum_rule_step(q[:, :, t], k[:, :, t], v[:, :, t], log_decay[:, :, t].exp(), state)
    torch.testing.assert_close(last, state, rtol=0, atol=1e-11)


def projected(layer, x):
    return (
        linear(x).unflatten(-1, (layer.num_heads, layer.head_size)).transpose(1, 2)
        for linear in (layer.query, layer.key, layer.value)
    )


def test_it_is_the_paper_s_mean_of_values_with_positive_weights():
    layer = LinearAttention(H * D, H, chunk_size=5)
    x = torch.randn(B, T, H * D)
    q, k, v = projected(layer, x)
    scores = ((torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT).tril()
    o = (scores / (scores.sum(-1, keepdim=True) + 1e-6)) @ v
    torch.testing.assert_close(layer(x)[0], layer.out_proj(o.transpose(1, 2).flatten(2)), rtol=0, atol=TOLERANCE)


def test_it_is_the_retention_of_retnet_with_the_identity_and_fixed_decays():
    layer = LinearAttention(H * D, H, feature_map="identity", decay="fixed", chunk_size=5)
    x = torch.randn(B, T, H * D)
    q, k, v = projected(layer, x)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    decay = torch.stack([((1 - 2.0 ** (-5 - h)) ** distance).tril() for h in range(H)])
    o = (q @ k.mT * D**-0.5 * decay) @ v
    o = torch.nn.functional.rms_norm(o, (D,), eps=1e-6)
    torch.testing.assert_close(layer(x)[0], layer.out_proj(o.transpose(1, 2).flatten(2)), rtol=0, atol=TOLERANCE)


def test_gated_decays_begin_as_the_fixed_ones_and_read_the_input():
    layer = LinearAttention(8, 4, decay="gated")
    fixed = LinearAttention(8, 4, decay="fixed")
    fixed.load_state_dict(layer.state_dict(), strict=False)
    zeros, state = torch.zeros(1, 8), torch.rand(1, 4, 2, 3)
    torch.testing.assert_close(layer.step(zeros, state), fixed.step(zeros, state), rtol=0, atol=TOLERANCE)
    x = torch.randn(1, 8)
    kept = torch.sigmoid(layer.decay_gate(x)) ** (1 / 16)
    k, v = layer.key(x).view(1, 4, 2), layer.value(x).view(1, 4, 2)
    written = (torch.nn.functional.elu(k) + 1)[..., None] * torch.cat([v, torch.ones(1, 4, 1)], 2)[:, :, None]
    torch.testing.assert_close(layer.step(x, state)[1], kept[..., None, None] * state + written, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_rows_with_strong_decays_are_finite_and_exact(dtype):
    """Without the sums of each pair's own logarithms, e^{+500} would appear, or the weak decays after a strong one
    would be differences of large numbers."""
    time = 3000
    q, k, v = (torch.rand(1, 1, time, D, dtype=dtype) for _ in range(3))
    log_decay = -0.01 * torch.rand(1, 1, time, dtype=dtype)
    log_decay[..., ::50] = -500
    log_decay.requires_grad_()
    o, _ = sum_rule(q, k, v, log_decay, torch.zeros(1, 1, D, D, dtype=dtype), 64)
    state, steps = torch.zeros(1, 1, D, D, dtype=dtype), []
    with torch.no_grad():
        for t in range(time):
            o_t, state = sum_rule_step(q[:, :, t], k[:, :, t], v[:, :, t], log_decay[:, :, t].exp(), state)
            steps.append(o_t)
    # A few units in the last place of sums of up to 50 terms.
    torch.testing.assert_close(o, torch.stack(steps, 2), rtol=5e-6 if dtype == torch.float32 else 1e-13, atol=0)
    o.sum().backward()
    assert log_decay.grad.isfinite().all()


def test_the_denominator_is_guarded_where_features_vanish():
    layer = LinearAttention(4, 1).float()
    with torch.no_grad():
        layer.key.bias.fill_(-200)
        layer.query.bias.fill_(-200)
    x = torch.randn(1, 5, 4, dtype=torch.float32, requires_grad=True)
    y, _ = layer(x)
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    layer.key.bias.data.fill_(-30)
    assert (layer(x)[1] != 0).all()  # elu(-30) + 1 rounds to 0 in float32, e^-30 does not


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_size": 10, "num_heads": 4}, "num_heads: expected a divisor of model_size 10, got 4: 5 is one"),
        ({"model_size": 0}, "model_size: expected an integer >= 1, got 0"),
        ({"model_size": 4, "num_heads": 0}, "num_heads: expected an integer >= 1, got 0"),
        ({"model_size": 4, "chunk_size": 0}, "chunk_size: expected an integer >= 1, got 0"),
        ({"model_size": 4, "decay": "some"}, "decay: expected 'none', 'fixed' or 'gated', got 'some'"),
        ({"model_size": 4, "feature_map": "relu"}, "feature_map: expected 'elu' or 'identity', got 'relu'"),
    ],
)
def test_impossible_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearAttention(**arguments)
