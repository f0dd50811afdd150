"""Blocks of a Transformer: norms, a feed-forward network, and residual connections around them."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.layers._pointwise import Linear, dropout, norm_layer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "gelu-tanh": partial(nn.functional.gelu, approximate="tanh"),  # GPT-2's
    "relu": nn.functional.relu,
}
GATED = "swiglu"


class FeedForward(nn.Module):
    r"""Two linear layers with a non-linearity between, at each element alone.

    .. math:: y = W_2\, \mathrm{gelu}(W_1 x + b_1) + b_2 \qquad\text{or}\qquad
        y = W_2\,(\mathrm{silu}(a) \odot g) + b_2, \quad [a, g] = W_1 x + b_1

    the second is SwiGLU (Shazeer 2020). W_1 has F rows, with SwiGLU 2·F; F is 4·D by default, with SwiGLU 8/3·D, for an
    equal number of weights.
    """

    def __init__(self, model_size: int, hidden_size: int | None = None, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        if activation != GATED and activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected one of {', '.join((*ACTIVATIONS, GATED))}, got {activation!r}")
        if hidden_size is None:
            hidden_size = 4 * model_size if activation != GATED else max(8 * model_size // 3, 1)
        check_sizes(model_size=model_size, hidden_size=hidden_size)
        self.activation = activation
        self.linear1 = Linear(model_size, hidden_size * (2 if activation == GATED else 1), bias=bias)
        self.linear2 = Linear(hidden_size, model_size, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; see `MultiHeadAttention.reset_parameters`."""
        for linear in (self.linear1, self.linear2):
            if not linear.weight.is_meta:
                nn.init.normal_(linear.weight, std=(3 * linear.in_features) ** -0.5)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.linear2(self._activated(self.linear1(x)))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.activation == GATED:
            opening, value = hidden.chunk(2, -1)
            return nn.functional.silu(opening) * value
        return ACTIVATIONS[self.activation](hidden)


class BlockOptions(TypedDict, total=False):
    """Arguments of a block besides its mixer; see `ResidualBlock`."""

    feed_forward_size: int | None
    activation: str
    norm: str
    norm_first: bool
    dropout: float


class ResidualBlock(nn.Module):
    r"""A mixer, which carries features between elements, and a feed-forward network, with a residual around each.

    .. math:: x \leftarrow x + \mathrm{mixer}(\mathrm{norm}_1(x)), \qquad
        x \leftarrow x + \mathrm{ffn}(\mathrm{norm}_2(x))

    is pre-norm (Xiong et al. 2020); post-norm is Vaswani et al. 2017's
    :math:`x \leftarrow \mathrm{norm}_1(x + \mathrm{mixer}(x))`, and the same for the network.

    Args:
        mixer: of features of width D.
        model_size: D.
        feed_forward_size: F; see `FeedForward`.
        activation: "gelu", "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: whether norms come before (pre-norm) or after the residual sum.
        dropout: probability of zeroing a feature that is added to the residual, in training.
        bias: whether the feed-forward network has biases.
    """

    def __init__(
        self,
        mixer: nn.Module,
        model_size: int,
        *,
        feed_forward_size: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        check_shares(dropout=dropout)
        self.mixer: Any = mixer  # of one class in each kind of block
        self.norm1, self.norm2 = norm_layer(norm, model_size), norm_layer(norm, model_size)
        self.feed_forward = FeedForward(model_size, feed_forward_size, activation=activation, bias=bias)
        self.norm_first, self.dropout = norm_first, dropout

    def _mixer_input(self, x: Tensor) -> Tensor:
        return self.norm1(x) if self.norm_first else x

    def _after_mixer(self, x: Tensor, read: Tensor) -> Tensor:
        """Return the block's result from x and the mixer's result."""
        x = self._sum(x, read, self.norm1)
        return self._sum(x, self.feed_forward(self.norm2(x) if self.norm_first else x), self.norm2)

    def last_products(self) -> list[nn.Linear]:
        """Return the last product of each residual branch, where it has one; see `shrink_residuals`."""
        last = getattr(self.mixer, "out_proj", None)
        return [*([] if last is None else [last]), self.feed_forward.linear2]

    def _sum(self, x: Tensor, branch: Tensor, norm: nn.Module) -> Tensor:
        x = x + dropout(branch, self.dropout, self.training)
        return x if self.norm_first else norm(x)


def last_norm(block: ResidualBlock) -> nn.Module:
    """Return the norm after a stack: like the norms of its blocks, or none if they normalise their results."""
    return copy.deepcopy(block.norm1) if block.norm_first else nn.Identity()


@torch.no_grad()
def shrink_residuals(blocks: Iterable[nn.Module]) -> None:
    """Divide the weights of the last product of each of R residual branches by √R, as GPT-2 does.

    The sum of the branches is then no larger than the input, however deep the stack (Radford et al. 2019). Blocks that
    have no `last_products` stay as they are.
    """
    linears = [linear for block in blocks for linear in getattr(block, "last_products", list)()]
    products = [linear for linear in linears if not linear.weight.is_meta]
    for linear in products:
        linear.weight.mul_(len(products) ** -0.5)
