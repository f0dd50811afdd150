"""The mixers of a causal Transformer by name: softmax attention, or any sequence layer in its place."""

from collections.abc import Callable
from typing import Literal

from chainrule.layers.causal_attention import CausalAttention
from chainrule.layers.delta_net import DeltaNet
from chainrule.layers.linear_attention import LinearAttention
from chainrule.layers.min_gru import MinGRU
from chainrule.layers.min_lstm import MinLSTM
from chainrule.layers.sequence_layer import SequenceLayer

Mixer = Literal["softmax", "linear", "retention", "gated-linear", "delta", "min-gru", "min-lstm"]


def _softmax(
    model_size: int, num_heads: int, *, window: int, num_kv_heads: int | None, position: str | None
) -> SequenceLayer:
    return CausalAttention(model_size, num_heads, window, num_kv_heads=num_kv_heads, position=position, bias=False)


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
) -> SequenceLayer:
    """A mixer of width D.

    Args:
        attention: a name in `MIXERS`.
        model_size: D.
        num_heads: H.
        window: elements that a query of softmax attention may read.
        num_kv_heads: of softmax attention; see `MultiHeadAttention`.
        position: "rotary", "alibi" or None, of softmax attention.

    Raises:
        ValueError: there is no such mixer, it has no such option, or a size is out of range.

    >>> mixer_layer("softmax", 8, 2, window=16)
    CausalAttention(
      8, num_heads=2, num_kv_heads=2
      (out_proj): Linear(in_features=8, out_features=8, bias=False)
    )
    """
    if attention not in MIXERS:
        raise ValueError(f"attention: expected one of {', '.join(MIXERS)}, got {attention!r}")
    if attention != "softmax" and num_kv_heads is not None:
        raise ValueError(f"num_kv_heads: {attention} has no heads of keys to share, got {num_kv_heads}: leave it None")
    return MIXERS[attention](model_size, num_heads, window=window, num_kv_heads=num_kv_heads, position=position)
