"""Base of the blocks of a Transformer: norms, a feed-forward network, and residual connections around them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares
from chainrule.layers._feed_forward import FeedForward
from chainrule.layers._pointwise import dropout, norm_layer


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
