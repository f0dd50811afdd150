"""A Transformer block that reads whole rows."""

from torch import Tensor, nn

from chainrule.base import length_mask
from chainrule.layers.bidirectional_attention import BidirectionalAttention
from chainrule.layers.residual_block import ResidualBlock


class EncoderBlock(ResidualBlock):
    """Bidirectional attention and a feed-forward network, each with a norm and a residual.

    Args:
        model_size: D, a multiple of `num_heads`.
        num_heads: H.
        position: "rotary", "alibi" or None.
        feed_forward_size: F; see `FeedForward`.
        activation: "gelu", "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: pre-norm, or post-norm; see `ResidualBlock`.
        dropout: see `ResidualBlock`.
        bias: whether the linear layers have biases.

    >>> import torch
    >>> EncoderBlock(8, num_heads=2)(torch.randn(2, 5, 8), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        *,
        position: str | None = "rotary",
        feed_forward_size: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__(
            BidirectionalAttention(model_size, num_heads, position=position, bias=bias),
            model_size,
            feed_forward_size=feed_forward_size,
            activation=activation,
            norm=norm,
            norm_first=norm_first,
            dropout=dropout,
            bias=bias,
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D), zero past each row's end."""
        y = self._after_mixer(x, self.mixer(self._mixer_input(x), lengths))
        return y if lengths is None else y.masked_fill(~length_mask(lengths, x.shape[1]).unsqueeze(2), 0)

    def last_products(self) -> list[nn.Linear]:
        """The last product of each residual branch; see `shrink_residuals`."""
        return [self.mixer.out_proj, self.feed_forward.linear2]
