"""A causal Transformer without its embedding and head: mixers by name, its block, positions and the last norm."""

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor

from chainrule._ranges import check_sizes
from chainrule.kernels._plain_modules import may_prepare
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._linear_attention import DeltaNet, LinearAttention
from chainrule.layers._minimal_recurrence import MinGRU, MinLSTM
from chainrule.layers._multi_head_attention import HEAD_POSITIONS
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._positions import LearnedPositions, PositionEmbedding, SinusoidalPositions
from chainrule.layers._residual_block import ResidualBlock, last_norm, shrink_residuals
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, Serial, stepping
from chainrule.state import State

POSITIONS = (*HEAD_POSITIONS, "sinusoidal", "learned")


class TransformerStack(SequenceLayer):
    r"""Causal Transformer blocks over (B, T, D).

    The state is a dict: "blocks", the tuple of the mixers' states, and "position", the elements that each row has read,
    `None` where no vector of a position is added.

    Args:
        model_size: D, a multiple of `num_heads`.
        num_layers: L, blocks.
        num_heads: H.
        num_kv_heads: G, of keys and values, a divisor of H; `None` is H.
        attention: the mixer, a name in `chainrule.layers._transformer_stack.MIXERS`.
        position: "rotary", "alibi", "sinusoidal", "learned", or `None`.
        window: W, elements that a query may read, itself included; `None` is the context length.
        context_length: largest W, and the number of positions where they are learned.
        feed_forward_size: F; see `FeedForward`.
        activation: "gelu", "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: pre-norm, or post-norm; see `ResidualBlock`.
        dropout: see `ResidualBlock`.
        bias: whether softmax attention and the feed-forward networks have biases.

    >>> import torch
    >>> stack = TransformerStack(8, 2, 2, context_length=16)
    >>> y, state = stack(torch.randn(2, 5, 8))
    >>> y.shape, stack.reach
    (torch.Size([2, 5, 8]), 31)
    """

    def __init__(
        self,
        model_size: int,
        num_layers: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        attention: str = "softmax",
        position: str | None = "rotary",
        window: int | None = None,
        context_length: int = 256,
        feed_forward_size: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = False,
    ):
        super().__init__()
        check_sizes(num_layers=num_layers, context_length=context_length)
        if position is not None and position not in POSITIONS:
            raise ValueError(f"position: expected one of {', '.join(POSITIONS)}, or None, got {position!r}")
        if window is not None and not 1 <= window <= context_length:
            raise ValueError(f"window: expected 1 to context_length = {context_length} elements, or None, got {window}")
        self.positions: PositionEmbedding | None = None
        if position == "sinusoidal":
            self.positions = SinusoidalPositions(model_size)
        elif position == "learned":
            self.positions = LearnedPositions(context_length, model_size)
        self.blocks = Serial(
            *(
                TransformerBlock(
                    mixer_layer(
                        attention,
                        model_size,
                        num_heads,
                        window=context_length if window is None else window,
                        num_kv_heads=num_kv_heads,
                        position=position if position in HEAD_POSITIONS else None,
                        bias=bias,
                    ),
                    model_size,
                    feed_forward_size=feed_forward_size,
                    activation=activation,
                    norm=norm,
                    norm_first=norm_first,
                    dropout=dropout,
                    bias=bias,
                )
                for _ in range(num_layers)
            )
        )
        self.norm = last_norm(self.layers[0])
        shrink_residuals(self.layers)

    @property
    def layers(self) -> "list[TransformerBlock]":
        """The blocks, from the input on."""
        return [layer for layer in self.blocks.parts if isinstance(layer, TransformerBlock)]

    @property
    def reach(self) -> int | None:
        """The number of elements that an output can depend on, 1 + L·(W − 1) including its own; `None` if unlimited."""
        mixers = [block.mixer for block in self.layers]
        if not all(isinstance(mixer, CausalAttention) for mixer in mixers):
            return None
        return 1 + sum(mixer.window - 1 for mixer in mixers)

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        position, states = (None, None) if state is None else (state["position"], state["blocks"])
        if self.positions is not None:
            x, position = self.positions(x, position, lengths)
        y, states = self.blocks(x, states, lengths)
        return zero_past_ends(self.norm(y), lengths), {"blocks": states, "position": position}

    def initial_state(self, batch_size: int) -> State:
        position = None if self.positions is None else self.positions.initial_state(batch_size)
        return {"blocks": self.blocks.initial_state(batch_size), "position": position}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self._step(stepping(self.blocks), x_t, state)

    def prepare(self) -> LayerStep:
        return partial(self._step, self.blocks.prepare()) if may_prepare(self) else stepping(self)

    def _step(self, step: LayerStep, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        position = state["position"]
        if self.positions is not None:
            x_t, position = stepping(self.positions)(x_t, position)
        y, states = step(x_t, state["blocks"])
        return self.norm(y), {"blocks": states, "position": position}


class TransformerBlock(ResidualBlock, SequenceLayer):
    """A causal mixer and a feed-forward network, each with a norm and a residual; the state is the mixer's.

    The mixer is any `SequenceLayer` of width D: `CausalAttention`, or a recurrence in its place. The other arguments
    are as for `ResidualBlock`.

    >>> import torch
    >>> from chainrule.layers import CausalAttention
    >>> block = TransformerBlock(CausalAttention(8, num_heads=2, window=4), model_size=8)
    >>> y, state = block(torch.randn(2, 6, 8))
    >>> y.shape, state["count"]
    (torch.Size([2, 6, 8]), tensor([6, 6]))
    """

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        read, state = self.mixer(self._mixer_input(x), state, lengths)
        return zero_past_ends(self._after_mixer(x, read), lengths), state

    def initial_state(self, batch_size: int) -> State:
        return self.mixer.initial_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self._step(stepping(self.mixer), x_t, state)

    def prepare(self) -> LayerStep:
        return partial(self._step, self.mixer.prepare()) if may_prepare(self) else stepping(self)

    def _step(self, mix: LayerStep, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        read, state = mix(self._mixer_input(x_t), state)
        return self._after_mixer(x_t, read), state


Mixer = Literal["softmax", "linear", "retention", "gated-linear", "delta", "min-gru", "min-lstm"]


def _softmax(
    model_size: int, num_heads: int, *, window: int, num_kv_heads: int | None, position: str | None, bias: bool
) -> SequenceLayer:
    return CausalAttention(model_size, num_heads, window, num_kv_heads=num_kv_heads, position=position, bias=bias)


# A mixer reads and writes (B, T, model_size). Keywords are of softmax attention alone; others leave them.
MIXERS: dict[str, Callable[..., SequenceLayer]] = {
    "softmax": _softmax,
    "linear": lambda size, heads, **_: LinearAttention(size, heads),
    "retention": lambda size, heads, **_: LinearAttention(size, heads, feature_map="identity", decay="fixed"),
    "gated-linear": lambda size, heads, **_: LinearAttention(size, heads, decay="gated"),
    "delta": lambda size, heads, **_: DeltaNet(size, heads),
    "min-gru": lambda size, heads, **_: MinGRU(size, size),
    "min-lstm": lambda size, heads, **_: MinLSTM(size, size),
}


def mixer_layer(
    attention: str,
    model_size: int,
    num_heads: int,
    *,
    window: int,
    num_kv_heads: int | None = None,
    position: str | None = None,
    bias: bool = False,
) -> SequenceLayer:
    """Return a mixer of width D, a name in `MIXERS`; all arguments after the heads are of softmax attention."""
    if attention not in MIXERS:
        raise ValueError(f"attention: expected one of {', '.join(MIXERS)}, got {attention!r}")
    if attention != "softmax" and num_kv_heads is not None:
        raise ValueError(f"num_kv_heads: {attention} has no heads of keys to share, got {num_kv_heads}: leave it None")
    keywords = {"window": window, "num_kv_heads": num_kv_heads, "position": position, "bias": bias}
    return MIXERS[attention](model_size, num_heads, **keywords)
