"""Base of multi-head attention: its weights, and the splitting into heads."""

from abc import ABC

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._linear import Linear, linear
from chainrule.layers._packing import real_steps
from chainrule.layers._positions import rotate, rotations
from chainrule.layers._sequence_layer import check_features

HEAD_POSITIONS = ("rotary", "alibi")


class MultiHeadAttention(nn.Module, ABC):
    r"""Attention of H heads over features of width D (Vaswani et al. 2017).

    .. math:: \mathrm{head}_h = \mathrm{softmax}\!\left(\frac{Q_h K_{g(h)}^\top}{\sqrt d}\right) V_{g(h)}, \qquad
        y = W_o\,[\mathrm{head}_1, \ldots, \mathrm{head}_H] + b_o

    with d = D / H and Q, K, V linear in what is read. `CausalAttention` reads the past, `BidirectionalAttention` the
    whole row, `CrossAttention` another sequence.

    The parameters are named as in `torch.nn.MultiheadAttention`: `in_proj_weight` holds the rows of Q, K and V in
    turn, `in_proj_bias` their biases, `out_proj` is a linear layer. Where keys and queries have equal numbers of
    heads, a `state_dict` loads from torch.nn and into it. There is no dropout on the weights: no fused kernel of a
    processor has it; a block drops features instead.

    Args:
        model_size: D, a multiple of `num_heads`.
        num_heads: H, of queries.
        num_kv_heads: G, of keys and values, a divisor of H: fewer make a smaller cache; `None` is H.
        position: "rotary" turns queries and keys by their positions, "alibi" takes from a score in proportion to the
            distance, `None` knows no order.
        bias: whether the projections have biases.
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        position: str | None = None,
        bias: bool = True,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_sizes(model_size=model_size, num_heads=num_heads, num_kv_heads=num_kv_heads)
        if model_size % num_heads:
            raise ValueError(
                f"model_size: expected a multiple of num_heads, got {model_size} with {num_heads} heads: "
                f"{model_size // num_heads * num_heads or num_heads} would do"
            )
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads: expected a divisor of num_heads = {num_heads}, got {num_kv_heads}")
        if position is not None and position not in HEAD_POSITIONS:
            raise ValueError(f"position: expected one of {', '.join(HEAD_POSITIONS)}, or None, got {position!r}")
        self.model_size, self.num_heads, self.num_kv_heads = model_size, num_heads, num_kv_heads
        self.head_size, self.position = model_size // num_heads, position
        if position == "rotary" and self.head_size % 2:
            raise ValueError(
                f"model_size: rotary positions need an even number of features a head, got {model_size} / {num_heads}"
            )
        rows = (num_heads + 2 * num_kv_heads) * self.head_size
        self.in_proj_weight = nn.Parameter(torch.empty(rows, model_size))
        self.in_proj_bias = nn.Parameter(torch.zeros(rows)) if bias else None
        self.out_proj = Linear(model_size, model_size, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights at GPT-2's scale: 0.02 for a width of 768, and more for a smaller one."""
        for weight in (self.in_proj_weight, self.out_proj.weight):
            if not weight.is_meta:
                nn.init.normal_(weight, std=(3 * self.model_size) ** -0.5)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def _split(self, projected: Tensor) -> Tensor:
        """(B, T, heads · d) -> (B, heads, T, d)."""
        return projected.unflatten(2, (-1, self.head_size)).transpose(1, 2)

    def _heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, d), keys and values (B, G, T, d) of x, (B, T, D).

        The first two are turned by their positions, (T,) or (B, T), if they are rotary. Heads are split before their
        axis is moved: the gradients of the parts then join in the order of memory, without a copy.
        """
        projected = linear(x, self.in_proj_weight, self.in_proj_bias)
        heads = projected.unflatten(2, (-1, self.head_size))  # (B, T, H + 2G, d)
        sizes = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        if self.position == "rotary":
            turning, values = heads.split([sum(sizes[:2]), sizes[2]], 2)
            turns = rotations(positions.unsqueeze(-1), self.head_size, heads)
            queries, keys = rotate(turning, turns).split(sizes[:2], 2)
        else:
            queries, keys, values = heads.split(sizes, 2)
        return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    def _joined(self, heads: Tensor) -> Tensor:
        """(B, H, T, d) -> y, (B, T, D)."""
        return self.out_proj(heads.transpose(1, 2).flatten(2))

    def _checked(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x with zeros for padding, which may hold NaN, and the (B, T) real elements where there are lengths."""
        check_features(x, "BT", self.model_size)
        real = real_steps(x, lengths)
        return (x, None) if real is None else (x.masked_fill(~real.unsqueeze(2), 0), real)

    def extra_repr(self) -> str:
        return f"{self.model_size}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}"
