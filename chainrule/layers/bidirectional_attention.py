"""Self-attention over whole rows, for encoders."""

import torch
from torch import Tensor

from chainrule.layers.multi_head_attention import MultiHeadAttention
from chainrule.layers.positions import distance_slopes
from chainrule.layers.scaled_dot_product import attention_weights, distances, scaled_dot_product


class BidirectionalAttention(MultiHeadAttention):
    r"""Multi-head attention in which each element reads every real element of its row.

    As each y_t knows the whole row, this belongs into an encoder, never under a causal model. The arguments are those
    of `MultiHeadAttention`; under "alibi" a score loses in proportion to the distance in either direction.

    >>> layer = BidirectionalAttention(model_size=8, num_heads=2)
    >>> layer(torch.randn(2, 5, 8), torch.tensor([5, 0]))[1].abs().sum().item()
    0.0
    """

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Read whole rows.

        Args:
            x: (B, T, D) features; padding may hold NaN.
            lengths: (B,) real elements of each row, 0 allowed; None where all are.

        Returns:
            y, (B, T, D), zero past each row's end.
        """
        x, real = self._checked(x, lengths)
        queries, keys, values = self._heads(x, torch.arange(x.shape[1], device=x.device))
        y = self._joined(scaled_dot_product(queries, keys, values, self._mask(real, queries)))
        return y if real is None else y * real.unsqueeze(2)

    def attended(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """α, (B, H, T, T); 0 for keys past a row's end."""
        x, real = self._checked(x, lengths)
        queries, keys, _ = self._heads(x, torch.arange(x.shape[1], device=x.device))
        return attention_weights(queries, keys, self._mask(real, queries))

    def _mask(self, real: Tensor | None, queries: Tensor) -> Tensor | None:
        time = queries.shape[2]
        if real is not None:
            # A row without elements reads its padding, all zeros, and is zeroed after: no softmax over nothing.
            real = (real | ~real.any(1, keepdim=True))[:, None, None]
        if self.position != "alibi":
            return real
        slopes = distance_slopes(self.num_heads).to(queries).view(-1, 1, 1)
        penalties = (-slopes * distances(time, 0, queries.device).abs()).unsqueeze(0)
        return penalties if real is None else penalties.masked_fill(~real, -torch.inf)
