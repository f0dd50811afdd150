"""Scaled dot-product attention over heads, and the masks of causal attention after a cache."""

import torch
from torch import Tensor, nn

from chainrule.kernels import enabled
from chainrule.kernels._transforms import needs_plain_form

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
