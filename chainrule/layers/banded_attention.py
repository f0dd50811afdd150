"""Attention over the last W elements at a cost of T·W, in blocks of queries."""

import torch
from torch import Tensor, nn

from chainrule.layers.scaled_dot_product import as_bias, distances, repeated_heads, visible_keys

_BLOCKS = (32, 128)  # queries of a block, fewest and most: products of small ones are slow, large ones read too much


def banded_attention(
    queries: Tensor, keys: Tensor, values: Tensor, window: int, slopes: Tensor | None = None
) -> Tensor:
    r"""Attention output of each query over its own key and the W − 1 keys before it.

    .. math:: y_t = \sum_{s = t - W + 1}^{t} \mathrm{softmax}_s(q_t^\top k_s / \sqrt d - m_h (t - s))\, v_s

    Each block of S queries reads the keys of its own elements and of the blocks before it that hold the W − 1 others,
    so that there are about T·(S + W) scores and not T². The queries belong to the last T keys.

    Args:
        queries: (B, H, T, d).
        keys: (B, G, n + T, d), H a multiple of G and n < W.
        values: (B, G, n + T, d).
        window: W.
        slopes: (H,) m of ALiBi (Press et al. 2022); `None` is 0.

    Returns:
        (B, H, T, d).

    >>> q, k, v = torch.randn(3, 1, 2, 10, 4, dtype=torch.float64)
    >>> causal = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> torch.allclose(banded_attention(q, k, v, window=10), causal)
    True
    """
    heads, time, size = queries.shape[1:]
    cached = keys.shape[2] - time
    block = min(max(window // 2, _BLOCKS[0]), _BLOCKS[1])
    blocks, earlier = -(-time // block), -(-(window - 1) // block)
    behind = blocks * block - time
    queries = nn.functional.pad(queries * size**-0.5, (0, 0, 0, behind)).unflatten(2, (blocks, block))

    def of_blocks(x: Tensor) -> Tensor:
        """(B, G, n + T, d) -> (B, H, blocks, keys of a block, d)."""
        x = nn.functional.pad(repeated_heads(x, heads), (0, 0, earlier * block - cached, behind))
        x = x.unflatten(2, (earlier + blocks, block))
        return torch.cat([x[:, :, first : first + blocks] for first in range(earlier + 1)], 3)

    place = torch.arange((blocks + earlier) * block, device=queries.device).unfold(0, (earlier + 1) * block, block)
    real = place >= earlier * block - cached  # (blocks, keys of a block): what is before the first key is padding
    read = visible_keys(block, earlier * block, window, queries.device) & real.unsqueeze(1)
    scores = queries @ of_blocks(keys).transpose(3, 4)
    bias = as_bias(read, scores.dtype)
    if slopes is not None:
        far = distances(block, earlier * block, queries.device)
        bias = bias - slopes.to(bias).view(-1, 1, 1, 1) * far
    weights = (scores + bias).softmax(-1)
    return (weights @ of_blocks(values)).flatten(2, 3)[:, :, :time]
