"""Building blocks without a loss."""

from chainrule.layers.causal_conv1d import CausalConv1d
from chainrule.layers.gated_stacks import GatedStacks
from chainrule.layers.gru import GRU
from chainrule.layers.lstm import LSTM
from chainrule.layers.masked_conv2d import MaskedConv2d
from chainrule.layers.masked_linear import MaskedLinear
from chainrule.layers.masked_residual_block import MaskedResidualBlock
from chainrule.layers.pixel_scores import PixelScores
from chainrule.layers.recurrent import Recurrent
from chainrule.layers.rnn import RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "CausalConv1d",
    "GatedStacks",
    "MaskedConv2d",
    "MaskedLinear",
    "MaskedResidualBlock",
    "PixelScores",
    "Recurrent",
]
