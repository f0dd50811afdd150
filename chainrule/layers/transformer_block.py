"""A causal Transformer block around any mixer."""

from torch import Tensor, nn

from chainrule.base import length_mask
from chainrule.layers.norms import prepared_norm
from chainrule.layers.residual_block import ResidualBlock
from chainrule.layers.sequence_layer import LayerStep, SequenceLayer
from chainrule.state import State


class TransformerBlock(ResidualBlock, SequenceLayer):
    """A causal mixer and a feed-forward network, each with a norm and a residual; the state is the mixer's.

    The mixer is any `SequenceLayer` of width D: `CausalAttention`, or a recurrence in its place. The other arguments
    are those of `ResidualBlock`.

    >>> import torch
    >>> from chainrule.layers import CausalAttention
    >>> block = TransformerBlock(CausalAttention(8, num_heads=2, window=4), model_size=8)
    >>> y, state = block(torch.randn(2, 6, 8))
    >>> y.shape, state["count"]
    (torch.Size([2, 6, 8]), tensor([6, 6]))
    """

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        read, state = self.mixer(self._mixer_input(x), state, lengths)
        y = self._after_mixer(x, read)
        if lengths is not None:
            y = y.masked_fill(~length_mask(lengths, x.shape[1]).unsqueeze(2), 0)
        return y, state

    def initial_state(self, batch_size: int) -> State:
        return self.mixer.initial_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        read, state = self.mixer.step(self._mixer_input(x_t), state)
        return self._after_mixer(x_t, read), state

    def prepare(self) -> LayerStep:
        mix, feed_forward = self.mixer.prepare(), self.feed_forward.prepare()
        norm1, norm2 = prepared_norm(self.norm1), prepared_norm(self.norm2)

        def before(x: Tensor, state: State) -> tuple[Tensor, State]:
            read, state = mix(norm1(x), state)
            x = x + read
            return x + feed_forward(norm2(x)), state

        def after(x: Tensor, state: State) -> tuple[Tensor, State]:
            read, state = mix(x, state)
            x = norm1(x + read)
            return norm2(x + feed_forward(x)), state

        return before if self.norm_first else after

    def last_products(self) -> list[nn.Linear]:
        """The last product of each residual branch, where it has one; see `shrink_residuals`."""
        products = (getattr(self.mixer, name, None) for name in ("out_proj", "output"))
        return [*(linear for linear in products if isinstance(linear, nn.Linear)), self.feed_forward.linear2]
