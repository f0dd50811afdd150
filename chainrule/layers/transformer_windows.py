"""A few elements of one row at a time through causal Transformer blocks, their weights prepared once."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from chainrule.layers.causal_attention import CausalAttention
from chainrule.layers.norms import prepared_norm
from chainrule.layers.positions import rotate, rotations
from chainrule.layers.prepared_linear import packed_linear
from chainrule.layers.scaled_dot_product import as_bias, visible_keys
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.layers.transformer_stack import TransformerBlock, TransformerStack

Map = Callable[[Tensor], Tensor]


class _Block(NamedTuple):
    norm1: Map
    project: Map
    output: Map
    norm2: Map
    feed_forward: Map


class TransformerWindows:
    """A function equal to `TransformerStack.forward` for one row (1, T, D) without gradients, T small.

    Positions and masks are computed once for all blocks, weights are packed once, and no module is called. For a few
    elements these take most of the time of `forward`.

    Args:
        stack: one that `fits`; its weights must stay as they are.
    """

    def __init__(self, stack: "TransformerStack"):
        first = stack.layers[0].mixer
        self.heads, self.head_size, self.window = first.num_heads, first.head_size, first.window
        self.rotary, self.norm = first.position == "rotary", prepared_norm(stack.norm)
        with torch.no_grad():
            self.blocks = [_prepared(block) for block in stack.layers]

    @staticmethod
    def fits(stack: "TransformerStack") -> bool:
        """Whether its blocks are pre-norm, of softmax attention with a key head for each query head, rotary or none."""
        return stack.positions is None and all(
            type(block.mixer).forward is CausalAttention.forward
            and block.norm_first
            and block.mixer.num_kv_heads == block.mixer.num_heads
            and block.mixer.position in ("rotary", None)
            for block in stack.layers
        )

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        time, heads, size = x.shape[1], self.heads, self.head_size
        count, cached = state["blocks"][0]["count"], state["blocks"][0]["keys"].shape[2]
        turns = None
        if self.rotary:
            turns = rotations(int(count) + torch.arange(time, device=x.device), size, x).unsqueeze(1)  # (T, 1, d/2)
        visible = visible_keys(time, cached, self.window, x.device)
        mask = as_bias(visible, x.dtype)
        kept = min(self.window - 1, cached + time)
        h, states = x[0], []
        for block, before in zip(self.blocks, state["blocks"], strict=True):
            parts = block.project(block.norm1(h)).view(time, 3 * heads, size)
            turned = parts[:, : 2 * heads]
            turned = turned if turns is None else rotate(turned, turns)
            queries, keys, values = turned[:, :heads], turned[:, heads:], parts[:, 2 * heads :]
            keys = torch.cat([before["keys"][0], keys.transpose(0, 1)], 1)  # (H, n + T, d)
            values = torch.cat([before["values"][0], values.transpose(0, 1)], 1)
            scores = torch.baddbmm(mask.expand(heads, -1, -1), queries.transpose(0, 1), keys.transpose(1, 2))
            read = torch.bmm(scores.softmax(-1), values).transpose(0, 1).reshape(time, -1)
            h = h + block.output(read)
            h = h + block.feed_forward(block.norm2(h))
            ends = {"keys": keys[None, :, cached + time - kept :], "values": values[None, :, cached + time - kept :]}
            states.append({**ends, "count": before["count"] + time})
        return self.norm(h).unsqueeze(0), {"blocks": tuple(states), "position": None}


def _prepared(block: "TransformerBlock") -> _Block:
    mixer = block.mixer
    # Queries come divided by √d.
    scale = torch.ones_like(mixer.in_proj_weight[:, :1])
    scale[: mixer.num_heads * mixer.head_size] = 1 / math.sqrt(mixer.head_size)
    bias = None if mixer.in_proj_bias is None else mixer.in_proj_bias * scale.squeeze(1)
    return _Block(
        prepared_norm(block.norm1),
        packed_linear(mixer.in_proj_weight * scale, bias),
        packed_linear(mixer.out_proj.weight, mixer.out_proj.bias),
        prepared_norm(block.norm2),
        block.feed_forward.prepare(packed_linear),
    )
