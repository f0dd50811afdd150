"""A causal Transformer block that also reads a memory."""

from collections.abc import Callable

from torch import Tensor, nn

from chainrule.layers.causal_attention import CausalAttention
from chainrule.layers.cross_attention import CrossAttention
from chainrule.layers.dropout import dropout
from chainrule.layers.feed_forward import FeedForward
from chainrule.layers.norms import norm_layer
from chainrule.state import State

DecoderStep = Callable[[Tensor, State, State], tuple[Tensor, State]]


class DecoderBlock(nn.Module):
    """Causal attention, attention to a memory, and a feed-forward network, each with a norm and a residual.

    The state is that of the causal attention; the memory does not change and is an argument of its own.

    Args:
        model_size: D, a multiple of `num_heads`.
        num_heads: H.
        window: W, elements that a query of the causal attention may read.
        num_kv_heads: see `MultiHeadAttention`.
        position: "rotary", "alibi" or None, of the causal attention.
        feed_forward_size: F; see `FeedForward`.
        activation: "gelu", "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: pre-norm, or post-norm; see `ResidualBlock`.
        dropout: see `ResidualBlock`.

    >>> import torch
    >>> block = DecoderBlock(8, num_heads=2, window=16)
    >>> remembered = block.cross.remember(torch.randn(2, 5, 8))
    >>> y, state = block(torch.randn(2, 3, 8), None, remembered)
    >>> y.shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        window: int,
        *,
        num_kv_heads: int | None = None,
        position: str | None = "rotary",
        feed_forward_size: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.mixer = CausalAttention(
            model_size, num_heads, window, num_kv_heads=num_kv_heads, position=position, bias=False
        )
        self.cross = CrossAttention(model_size, num_heads, num_kv_heads=num_kv_heads, bias=False)
        self.feed_forward = FeedForward(model_size, feed_forward_size, activation=activation, bias=False)
        self.norm1, self.norm2, self.norm3 = (norm_layer(norm, model_size) for _ in range(3))
        self.norm_first, self.dropout = norm_first, dropout

    def forward(self, x: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read a chunk x (B, T, D) from a state, None at the beginning, with the memory in sight."""
        read, state = self.mixer(self.norm1(x) if self.norm_first else x, state)
        x = self._sum(x, read, self.norm1)
        x = self._sum(x, self.cross(self.norm2(x) if self.norm_first else x, remembered), self.norm2)
        return self._sum(x, self.feed_forward(self.norm3(x) if self.norm_first else x), self.norm3), state

    def step(self, x_t: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read one element of each row, (B, D)."""
        y, state = self(x_t.unsqueeze(1), state, remembered)
        return y.squeeze(1), state

    def prepare(self) -> DecoderStep:
        """A function equal to `step` in evaluation while the weights stay as they are."""
        if not self.norm_first:
            return self.step
        mix, feed_forward, cross = self.mixer.prepare(), self.feed_forward.prepare(), self.cross
        norm1, norm2, norm3 = self.norm1, self.norm2, self.norm3

        def step(x: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
            read, state = mix(norm1(x), state)
            x = x + read
            x = x + cross(norm2(x).unsqueeze(1), remembered).squeeze(1)
            return x + feed_forward(norm3(x)), state

        return step

    def last_products(self) -> list[nn.Linear]:
        """The last product of each residual branch; see `shrink_residuals`."""
        return [self.mixer.out_proj, self.cross.out_proj, self.feed_forward.linear2]

    def _sum(self, x: Tensor, branch: Tensor, norm: nn.Module) -> Tensor:
        x = x + dropout(branch, self.dropout, self.training)
        return x if self.norm_first else norm(x)
