"""A causal Transformer without its embedding and head: mixers by name, blocks with residual connections, positions."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._linear_attention import DeltaNet, LinearAttention
from chainrule.layers._minimal_recurrence import MinGRU, MinLSTM
from chainrule.layers._multi_head_attention import HEAD_POSITIONS
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout, norm_layer
from chainrule.layers._positions import LearnedPositions, PositionEmbedding, SinusoidalPositions
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, Serial, stepping
from chainrule.option_error import OptionError, option
from chainrule.state import State

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

    is_closed = True  # see `ResidualBlock`

    def __init__(self, model_size: int, hidden_size: int | None = None, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        if activation != GATED and activation not in ACTIVATIONS:
            raise OptionError("activation", f"expected one of {', '.join((*ACTIVATIONS, GATED))}, got {activation!r}")
        if hidden_size is None:
            hidden_size = 4 * model_size if activation != GATED else max(8 * model_size // 3, 1)
        check_sizes(model_size=model_size, hidden_size=hidden_size)
        self.activation = activation
        self.linear1 = nn.Linear(model_size, hidden_size * (2 if activation == GATED else 1), bias=bias)
        self.linear2 = nn.Linear(hidden_size, model_size, bias=bias)
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

    is_closed = True  # whether only `forward` reads the weights in training

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
            raise OptionError("position", f"expected one of {', '.join(POSITIONS)}, or None, got {position!r}")
        if window is not None and not 1 <= window <= context_length:
            raise OptionError(
                "window", f"expected 1 to {option('context_length')} = {context_length} elements, or None, got {window}"
            )
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
        raise OptionError("attention", f"expected one of {', '.join(MIXERS)}, got {attention!r}")
    if attention != "softmax" and num_kv_heads is not None:
        raise OptionError(
            "num_kv_heads", f"{attention} has no heads of keys to share, got {num_kv_heads}", "leave it None"
        )
    keywords = {"window": window, "num_kv_heads": num_kv_heads, "position": position, "bias": bias}
    return MIXERS[attention](model_size, num_heads, **keywords)
