"""The delta rule: its matrices multiplied out, and a memory that replaces."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import DeltaNet
from chainrule.layers._linear_attention import delta_rule, delta_rule_step

pytestmark = pytest.mark.usefixtures("float64")

B, H, T, D = 2, 3, 13, 4


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


@given(st.integers(1, 20), st.floats(0, 60), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_it_is_the_product_of_its_transitions_from_a_memory_of_any_sign(chunk_size, strongest, seed):
    """S_t = a_t (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ, one matrix product a step."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, B, H, T, D, generator=generator).unbind()
    k = unit(k)
    strength = torch.rand(B, H, T, generator=generator)
    log_decay = -strongest * torch.rand(B, H, T, generator=generator)
    state = memory = torch.randn(B, H, D, D, generator=generator)
    o, last = delta_rule(q, k, v, strength, log_decay, state, chunk_size)
    for t in range(T):
        at = (slice(None), slice(None), t)
        k_t, v_t, beta = k[at][..., None], v[at][..., None], strength[at][..., None, None]
        transition = log_decay[at].exp()[..., None, None] * (torch.eye(D) - beta * k_t @ k_t.mT)
        memory = transition @ memory + beta * k_t @ v_t.mT
        expected = (memory.mT @ q[at][..., None]).squeeze(-1)
        torch.testing.assert_close(o[at], expected, rtol=0, atol=1e-11)
        o_t, state = delta_rule_step(q[at], k[at], v[at], strength[at], log_decay[at].exp(), state)
        torch.testing.assert_close(o_t, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(last, memory, rtol=0, atol=1e-11)


def test_a_key_returns_the_last_value_that_was_stored_under_it():
    keys, values = torch.eye(D)[torch.arange(T) % D], torch.randn(T, D)
    k, v = keys.expand(1, 1, T, D), values.expand(1, 1, T, D)
    o, state = delta_rule(k, k, v, torch.ones(1, 1, T), torch.zeros(1, 1, T), torch.zeros(1, 1, D, D), 5)
    torch.testing.assert_close(o, v, rtol=0, atol=1e-12)
    latest = torch.stack([values[last] for last in (12, 9, 10, 11)])
    torch.testing.assert_close(state[0, 0], latest, rtol=0, atol=1e-12)


@pytest.mark.parametrize("decay", ["none", "fixed", "gated"])
def test_the_memory_stays_bounded_over_long_rows_of_one_key(decay):
    """Added up, as linear attention does, 2,000 equal elements would give 2,000 times the value."""
    layer = DeltaNet(8, 2, decay=decay).float()
    x = torch.randn(1, 1, 8, dtype=torch.float32).expand(1, 2000, 8)
    y, state = layer(x)
    assert state.abs().max() <= layer.value(x[:, :1]).abs().max() * 1.001
    assert y.isfinite().all()


def test_keys_have_length_one():
    layer = DeltaNet(8, 2)
    x = torch.randn(1, 8)
    _, state = layer.step(x, layer.initial_state(1))
    k = unit(torch.nn.functional.silu(layer.key(x)).view(1, 2, 4))
    written = torch.sigmoid(layer.strength(x))[..., None] * layer.value(x).view(1, 2, 4)
    torch.testing.assert_close(state, k[..., None] * written[:, :, None], rtol=1e-4, atol=0)  # the guard of the length
