"""The parameters of a Transformer block under the names of torch.nn's, and back."""

from collections.abc import Mapping

from torch import Tensor

# ours, torch.nn.TransformerEncoderLayer's
_NAMES = {"mixer.": "self_attn.", "feed_forward.linear1.": "linear1.", "feed_forward.linear2.": "linear2."}


def from_encoder_layer(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `state_dict` of a `torch.nn.TransformerEncoderLayer`, as a block of attention loads it.

    The block has the same sizes, `norm_first` and activation, LayerNorm, and no positions: a `TransformerBlock` with
    `CausalAttention` for a layer that is called with a causal mask, an `EncoderBlock` for one without.

    >>> from torch import nn
    >>> from chainrule.layers._transformer_encoder import EncoderBlock
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
    >>> block = EncoderBlock(8, num_heads=2, feed_forward_size=16, position=None, norm_first=False)
    >>> block.load_state_dict(from_encoder_layer(layer.state_dict()))
    <All keys matched successfully>
    """
    return _renamed(weights, {theirs: ours for ours, theirs in _NAMES.items()})


def to_encoder_layer(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `from_encoder_layer`: a block's `state_dict` for a `torch.nn.TransformerEncoderLayer`."""
    return _renamed(weights, _NAMES)


def _renamed(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    renamed = {}
    for name, weight in weights.items():
        old = next((prefix for prefix in names if name.startswith(prefix)), "")
        renamed[names.get(old, "") + name[len(old) :]] = weight
    return renamed
