"""Scaled dot-product attention over heads, its masks and weights, and attention inside the windows of an image."""

from abc import ABC
from functools import partial

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule._ranges import check_sizes
from chainrule.kernels import enabled
from chainrule.kernels._transforms import needs_plain_form
from chainrule.layers._packing import real_steps
from chainrule.layers._positions import rotate, rotations
from chainrule.layers._sequence_layer import check_features
from chainrule.option_error import OptionError, option

_PLAIN_SCORES = 512**2  # of a head; with more, they no longer stay in a processor's cache


def scaled_dot_product(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    r"""Attention output of each query, :math:`\mathrm{softmax}(Q K^\top / \sqrt d)\, V` (Vaswani et al. 2017).

    Query head h reads key head ⌊h / (H/G)⌋, so that G key heads serve H query heads (Ainslie et al. 2023); G = 1 is
    multi-query attention. `torch.nn.functional.scaled_dot_product_attention` computes it, except under transformations
    of `torch.func`, which its kernels do not support, and in training in bfloat16 on a processor, where for short
    sequences its backward pass takes 1.3 to 8 times as long as plain products (benchmarks/LOG.md).

    Args:
        queries: (B, H, T, d).
        keys: (B, G, S, d), H a multiple of G.
        values: (B, G, S, d).
        mask: broadcast against (B, H, T, S): booleans, true where a query may read, or numbers added to the scores.
            Every query must be allowed a key.
        causal: query t reads keys 0 to t. Needs T = S: with fewer queries than keys torch aligns its causal mask with
            the first key, where a cache needs the last; `visible_keys` makes that mask.

    Returns:
        (B, H, T, d).
    """
    if causal and queries.shape[2] != keys.shape[2]:
        raise ValueError(
            f"causal: expected {keys.shape[2]} queries, one per key, got {queries.shape[2]}: give visible_keys"
        )
    heads, groups = queries.shape[1], keys.shape[1]
    if not enabled() or needs_plain_form() or _backward_is_slow(queries, keys):
        if causal:
            mask = visible_keys(queries.shape[2], 0, device=queries.device)
        weights = attention_weights(queries, keys, mask)
        return weights @ repeated_heads(values, heads)
    if groups < heads and queries.shape[2] == 1 and (mask is None or mask.shape[1] == 1):
        # The heads that share a key are its queries, side by side: no key is repeated.
        grouped = queries.view(len(queries), groups, heads // groups, queries.shape[3])
        return nn.functional.scaled_dot_product_attention(grouped, keys, values, mask).view(queries.shape)
    keys, values = repeated_heads(keys, heads), repeated_heads(values, heads)
    return nn.functional.scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the weight of each key for each query, (B, H, T, S); arguments as for `scaled_dot_product`."""
    scores = queries * queries.shape[3] ** -0.5 @ repeated_heads(keys, queries.shape[1]).transpose(2, 3)
    if mask is not None:
        scores = scores + (as_bias(mask, scores.dtype) if mask.dtype == torch.bool else mask)
    return scores.softmax(-1)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a mask to a bias of scores: 0 where a query may read, else -inf. Its gradient costs nothing."""
    return torch.zeros((), dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)


def _backward_is_slow(queries: Tensor, keys: Tensor) -> bool:
    """Return whether torch's kernel is slower than plain products."""
    recorded = queries.requires_grad and torch.is_grad_enabled()
    on_processor = queries.device.type == "cpu" and queries.dtype == torch.bfloat16
    return recorded and on_processor and queries.shape[2] * keys.shape[2] <= _PLAIN_SCORES


def visible_keys(time: int, cached: int, window: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """Mark the keys that each of T queries may read after a cache, (T, cached + T) booleans.

    The queries belong to the last T keys: query t reads the last `window` keys up to cached + t.

    >>> visible_keys(2, cached=2, window=3).int()
    tensor([[1, 1, 1, 0],
            [0, 1, 1, 1]], dtype=torch.int32)
    """
    visible = torch.ones(time, cached + time, dtype=torch.bool, device=device).tril(cached)
    return visible if window is None else visible.triu(cached - window + 1)


def distances(time: int, cached: int, device: torch.device | str | None = None) -> Tensor:
    """Count the elements from each key to each query, (T, cached + T); negative for later keys.

    >>> distances(2, cached=1)
    tensor([[ 1,  0, -1],
            [ 2,  1,  0]])
    """
    keys = torch.arange(-cached, time, device=device)
    return torch.arange(time, device=device).unsqueeze(1) - keys


def repeated_heads(keys: Tensor, heads: int) -> Tensor:
    """Return the keys or values of each of H query heads, (B, H, S, d), from (B, G, S, d)."""
    return keys if keys.shape[1] == heads else keys.repeat_interleave(heads // keys.shape[1], 1)


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

    low_rank: nn.Module | None  # the change of `in_proj_weight` in training, see `_low_rank`

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
            raise OptionError(
                "model_size",
                f"expected a multiple of {option('num_heads')}, got {model_size} with {num_heads} heads",
                f"{model_size // num_heads * num_heads or num_heads} would do",
            )
        if num_heads % num_kv_heads:
            raise OptionError(
                "num_kv_heads", f"expected a divisor of {option('num_heads')} = {num_heads}, got {num_kv_heads}"
            )
        if position is not None and position not in HEAD_POSITIONS:
            raise OptionError("position", f"expected one of {', '.join(HEAD_POSITIONS)}, or None, got {position!r}")
        self.model_size, self.num_heads, self.num_kv_heads = model_size, num_heads, num_kv_heads
        self.head_size, self.position = model_size // num_heads, position
        if position == "rotary" and self.head_size % 2:
            raise OptionError(
                "model_size", f"rotary positions need an even number of features a head, got {model_size} / {num_heads}"
            )
        rows = (num_heads + 2 * num_kv_heads) * self.head_size
        self.in_proj_weight = nn.Parameter(torch.empty(rows, model_size))
        self.in_proj_bias = nn.Parameter(torch.zeros(rows)) if bias else None
        self.out_proj = nn.Linear(model_size, model_size, bias=bias)
        self.register_module("low_rank", None)
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

    def _projected(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """Queries, keys and values of x, side by side, or the given part of them."""
        weight: Tensor = self.in_proj_weight
        bias: Tensor | None = self.in_proj_bias
        if rows is not None:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        y = nn.functional.linear(x, weight, bias)
        return y if self.low_rank is None else y + self.low_rank(x, rows)

    def _heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, d), keys and values (B, G, T, d) of x, (B, T, D).

        The first two are turned by their positions, (T,) or (B, T), if they are rotary. Heads are split before their
        axis is moved: the gradients of the parts then join in the order of memory, without a copy.
        """
        heads = self._projected(x).unflatten(2, (-1, self.head_size))  # (B, T, H + 2G, d)
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


class WindowAttention(nn.Module):
    r"""Multi-head attention between the places of each window of an image (Liu et al. 2021, Swin).

    .. math:: \mathrm{softmax}(Q K^\top / \sqrt d + B)\, V

    in each window of M×M places; B depends on the two places' offset alone, a learnt number for each head and offset
    (relative position bias). With `shift` s the image is moved by (-s, -s) in a circle before it is cut into windows,
    and back afterwards. A window that then holds parts from opposite borders has a mask: only places that are near in
    the image read each other. Along a side that a single window spans, nothing is moved.
    """

    mask: Tensor | None
    offsets: Tensor

    def __init__(self, model_size: int, num_heads: int, height: int, width: int, window: int, shift: int = 0):
        super().__init__()
        if model_size < 1 or num_heads < 1 or model_size % num_heads:
            raise OptionError(
                "model_size", f"expected a multiple of {option('num_heads')}, got {model_size} with {num_heads} heads"
            )
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.in_proj = nn.Linear(model_size, 3 * model_size)
        self.out_proj = nn.Linear(model_size, model_size)
        for projection in (self.in_proj, self.out_proj):
            nn.init.normal_(projection.weight, std=(3 * model_size) ** -0.5)
            nn.init.zeros_(projection.bias)
        self.bias = nn.Parameter(torch.zeros(num_heads, (2 * window - 1) ** 2))
        fixed_buffer(self, "offsets", partial(relative_offsets, window))
        if shift:
            fixed_buffer(self, "mask", partial(shifted_mask, height, width, window, shift))
        else:
            self.register_buffer("mask", None)

    def forward(self, x: Tensor) -> Tensor:
        """(B, height, width, D) to the same."""
        queries, keys, values = self._heads(x)
        # Plain products: torch has no fast kernel for scores to which a learnt bias is added.
        weights = attention_weights(queries, keys, self._scores(len(x), queries.dtype))
        return self.out_proj(self._joined(weights @ values, x.shape))

    def attended(self, x: Tensor) -> Tensor:
        """(B, windows, H, M², M²) of how much of each place of its window a place reads."""
        queries, keys, _ = self._heads(x)
        return attention_weights(queries, keys, self._scores(len(x), queries.dtype)).unflatten(0, (len(x), -1))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B · windows, H, M², d) each."""
        x = self._moved(x, -self.shift)
        batch, height, width, size = x.shape
        side = self.window
        windows = x.view(batch, height // side, side, width // side, side, size).transpose(2, 3).flatten(3, 4)
        projected = self.in_proj(windows.reshape(-1, side * side, size))
        queries, keys, values = projected.unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return queries, keys, values

    def _scores(self, batch: int, dtype: torch.dtype) -> Tensor:
        """Terms added to the scores of every window: the bias of offsets, and -inf where the mask forbids."""
        bias = self.bias[:, self.offsets].to(dtype)  # (H, M², M²)
        if self.mask is None:
            return bias.unsqueeze(0)
        masked = bias.masked_fill(~self.mask.unsqueeze(1), -torch.inf)  # (windows, H, M², M²)
        return masked.repeat(batch, 1, 1, 1)

    def _joined(self, read: Tensor, shape: torch.Size) -> Tensor:
        batch, height, width, size = shape
        side = self.window
        windows = read.transpose(1, 2).reshape(batch, height // side, width // side, side, side, size)
        y = windows.transpose(2, 3).reshape(batch, height, width, size)
        return self._moved(y, self.shift)

    def _moved(self, x: Tensor, shift: int) -> Tensor:
        """Move the image along the sides that several windows cover."""
        sides = [axis for axis in (1, 2) if x.shape[axis] > self.window]
        return x.roll([shift] * len(sides), sides) if shift and sides else x


def relative_offsets(window: int) -> Tensor:
    """(M², M²) numbers of the offsets between the places of a window, in [0, (2M - 1)²).

    >>> relative_offsets(2)[0].tolist()
    [4, 3, 1, 0]
    """
    rows, columns = (
        part.flatten() for part in torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
    )
    down = rows.unsqueeze(1) - rows + window - 1
    right = columns.unsqueeze(1) - columns + window - 1
    return down * (2 * window - 1) + right


def shifted_mask(height: int, width: int, window: int, shift: int) -> Tensor:
    """(windows, M², M²) booleans: whether two places of a window are neighbours in the image before it was moved.

    >>> shifted_mask(2, 4, window=2, shift=1).all(-1).all(-1).tolist()
    [True, False]
    """

    def region(size: int) -> Tensor:
        """Number the three bands of rows or columns of the moved image: whole windows, and two parts."""
        band = torch.zeros(size, dtype=torch.long)
        if size > window:  # a side that one window spans is not moved
            band[size - window : size - shift] = 1
            band[size - shift :] = 2
        return band

    regions = region(height).unsqueeze(1) * 3 + region(width)
    side = window
    windows = regions.view(height // side, side, width // side, side).transpose(1, 2).reshape(-1, side * side)
    return windows.unsqueeze(2) == windows.unsqueeze(1)
