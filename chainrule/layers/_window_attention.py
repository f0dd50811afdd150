"""Attention inside the windows of an image, which may be shifted."""

from functools import partial

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule.layers._multi_head_attention import attention_weights
from chainrule.layers._pointwise import Linear


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
            raise ValueError(f"model_size: expected a multiple of num_heads, got {model_size} with {num_heads} heads")
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.in_proj = Linear(model_size, 3 * model_size)
        self.out_proj = Linear(model_size, model_size)
        for linear in (self.in_proj, self.out_proj):
            nn.init.normal_(linear.weight, std=(3 * model_size) ** -0.5)
            nn.init.zeros_(linear.bias)
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
