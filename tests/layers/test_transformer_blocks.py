"""Blocks, encoders and attention to a memory, against torch.nn with the same weights."""

import pytest
import torch
from torch import nn

from chainrule.layers import CausalAttention, Serial, TransformerBlock
from chainrule.layers._attention import CrossAttention
from chainrule.layers._row_encoders import BidirectionalAttention, EncoderBlock
from chainrule.layers._transformer_stack import FeedForward, shrink_residuals
from chainrule.state import select, share

SIZE, HEADS = 8, 2
LENGTHS = torch.tensor([6, 2, 4])


NAMES = {"self_attn.": "mixer.", "linear1.": "feed_forward.linear1.", "linear2.": "feed_forward.linear2."}


def as_block(weights):
    """The `state_dict` of a `torch.nn.TransformerEncoderLayer`, by the names of a block."""
    prefixes = {name: next((prefix for prefix in NAMES if name.startswith(prefix)), "") for name in weights}
    return {NAMES.get(prefix, "") + name.removeprefix(prefix): weights[name] for name, prefix in prefixes.items()}


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def blocks(count=2, window=3, **options):
    return Serial(
        *(TransformerBlock(CausalAttention(SIZE, HEADS, window), SIZE, **options) for _ in range(count))
    ).double()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_causal_block_is_torchs_encoder_layer_under_a_causal_mask(norm_first, activation):
    theirs = nn.TransformerEncoderLayer(
        SIZE, HEADS, 16, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    mixer = CausalAttention(SIZE, HEADS, 9, position=None)
    ours = TransformerBlock(mixer, SIZE, feed_forward_size=16, activation=activation, norm_first=norm_first).double()
    ours.load_state_dict(as_block(theirs.state_dict()))
    x = double(3, 6, SIZE)
    expected = theirs(x, nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64), is_causal=True)
    torch.testing.assert_close(ours(x)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_block_is_torchs_over_the_real_elements(norm_first):
    theirs = nn.TransformerEncoderLayer(
        SIZE, HEADS, 16, 0.0, "gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    ours = EncoderBlock(SIZE, HEADS, feed_forward_size=16, position=None, norm_first=norm_first).double()
    ours.load_state_dict(as_block(theirs.state_dict()))
    x = double(3, 6, SIZE)
    padding = torch.arange(6) >= LENGTHS.unsqueeze(1)
    expected = theirs(x, src_key_padding_mask=padding).masked_fill(padding.unsqueeze(2), 0)
    spoiled = x.masked_fill(padding.unsqueeze(2), torch.nan)
    torch.testing.assert_close(ours(spoiled, LENGTHS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_reading_a_memory_is_torchs_attention_with_other_keys(num_kv_heads):
    ours = CrossAttention(SIZE, HEADS, num_kv_heads=num_kv_heads).double()
    theirs = nn.MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=torch.float64)
    weights = ours.state_dict()
    if num_kv_heads == 1:  # torch.nn has as many heads of keys as of queries: repeat the one
        query, key, value = weights["in_proj_weight"].split([SIZE, SIZE // 2, SIZE // 2])
        weights = {**weights, "in_proj_weight": torch.cat([query, key, key, value, value])}
        weights["in_proj_bias"] = torch.zeros(3 * SIZE, dtype=torch.float64)
    theirs.load_state_dict(weights)
    x, memory = double(3, 4, SIZE), double(3, 6, SIZE)
    padding = torch.arange(6) >= LENGTHS.unsqueeze(1)
    expected, alpha = theirs(x, memory, memory, key_padding_mask=padding, average_attn_weights=False)
    remembered = ours.remember(memory.masked_fill(padding.unsqueeze(2), torch.nan), LENGTHS)
    torch.testing.assert_close(ours(x, remembered), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.attended(x, remembered), alpha, rtol=0, atol=1e-12)


def test_an_empty_memory_reads_zeros_beside_one_that_is_not():
    layer, x, memory = CrossAttention(SIZE, HEADS, bias=False).double(), double(2, 3, SIZE), double(2, 4, SIZE)
    read = layer(x, layer.remember(memory, torch.tensor([4, 0])))
    assert not read[1].any()
    torch.testing.assert_close(read[:1], layer(x[:1], layer.remember(memory[:1])), rtol=0, atol=1e-12)
    assert not layer(x, layer.remember(memory[:, :0])).any()


def test_forks_that_share_a_memory_read_it_as_copies_would():
    layer, memory, rows = CrossAttention(SIZE, HEADS).double(), double(3, 5, SIZE), torch.tensor([2, 0, 0, 2, 2])
    remembered, x = layer.remember(memory, torch.tensor([5, 1, 3])), double(5, 1, SIZE)
    shared = select(share(remembered), rows)
    torch.testing.assert_close(layer(x, shared), layer(x, select(remembered, rows)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_bidirectional_attention_knows_distances_and_not_where_a_row_begins(position):
    layer, x = BidirectionalAttention(SIZE, HEADS, position=position).double(), double(1, 5, SIZE)
    turned = layer(x.flip(1)).flip(1)
    assert (layer(x) - turned).abs().max() > 1e-6 or position == "alibi"  # alibi is symmetric
    moved = x[:, [1, 0, 2, 3, 4]]
    assert (layer(x)[:, 2:] - layer(moved)[:, 2:]).abs().max() > 1e-6
    weights = layer.attended(x, torch.tensor([3]))
    torch.testing.assert_close(weights.sum(3), torch.ones(1, HEADS, 5, dtype=torch.float64))
    assert not weights[..., 3:].any()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_a_stack_of_blocks_in_chunks_and_steps_is_the_whole(norm_first, norm, activation):
    stack, x = blocks(norm_first=norm_first, norm=norm, activation=activation), double(2, 9, SIZE)
    whole, _ = stack(x)
    first, state = stack(x[:, :5])
    second, _ = stack(x[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=0, atol=1e-12)
    with torch.no_grad():
        for step in (stack.step, stack.prepare()):
            for rows in (2, 1):
                state = stack.initial_state(rows)
                for t in range(9):
                    y, state = step(x[:rows, t], state)
                    torch.testing.assert_close(y, whole[:rows, t], rtol=0, atol=1e-12)


def test_past_a_rows_end_a_block_gives_zeros():
    y, state = blocks()(double(3, 6, SIZE), None, LENGTHS)
    padding = torch.arange(6) >= LENGTHS.unsqueeze(1)
    assert not y[padding].any()
    assert state[0]["count"].tolist() == LENGTHS.tolist()


def test_dropout_is_for_training_alone():
    stack, x = blocks(dropout=0.5), double(1, 6, SIZE)
    assert not torch.equal(stack(x)[0], stack(x)[0])
    assert torch.equal(stack.eval()(x)[0], stack(x)[0])


def test_residual_branches_of_a_deep_stack_begin_small():
    stack = blocks(count=8)
    before = stack.layers[0].feed_forward.linear2.weight.std()
    shrink_residuals(stack.parts)
    torch.testing.assert_close(stack.layers[0].feed_forward.linear2.weight.std(), before / 4)


def test_the_gated_network_has_as_many_weights_as_the_plain_one():
    plain, gated = (FeedForward(96, activation=kind, bias=False) for kind in ("gelu", "swiglu"))
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in gated.parameters())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="activation: expected one of gelu, gelu-tanh, relu, swiglu, got 'tanh'"):
        FeedForward(8, activation="tanh")
    with pytest.raises(ValueError, match="norm: expected one of layer, rms, got 'batch'"):
        EncoderBlock(8, 2, norm="batch")
    with pytest.raises(ValueError, match="dropout: expected a number"):
        EncoderBlock(8, 2, dropout=1.0)
