"""Building blocks without a loss."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.kernels._scan import chunk_decays, sum_rule
    from chainrule.layers._adaptive_softmax import AdaptiveSoftmax, default_cutoffs
    from chainrule.layers._attention import AdditiveAttention, Attention, CrossAttention, MultiplicativeAttention
    from chainrule.layers._causal_attention import CausalAttention
    from chainrule.layers._character_encoder import CharacterEncoder
    from chainrule.layers._dilated_stack import CausalConv1d, DilatedStack
    from chainrule.layers._gated_pyramid import ShiftedConv2d
    from chainrule.layers._group_network import coarse_to_fine
    from chainrule.layers._image_encoder import ImageEncoder
    from chainrule.layers._kneser_ney import KneserNey
    from chainrule.layers._lattice_lstm import DiagonalLSTM, RowLSTM, skew
    from chainrule.layers._linear_attention import DeltaNet, LinearAttention
    from chainrule.layers._log_mel import LogMel
    from chainrule.layers._masked_conv2d import MaskedConv2d, spatial_mask
    from chainrule.layers._masked_linear import made_degrees, made_masks, raster_orders
    from chainrule.layers._minimal_recurrence import MinGRU, MinLSTM, linear_scan
    from chainrule.layers._multi_head_attention import (
        MultiHeadAttention,
        attention_weights,
        scaled_dot_product,
        visible_keys,
    )
    from chainrule.layers._packing import max_pooling, mean_pooling
    from chainrule.layers._positions import LearnedPositions, PositionEmbedding, SinusoidalPositions
    from chainrule.layers._recurrent import Recurrent
    from chainrule.layers._recurrent_stack import GRU, LSTM, RNN
    from chainrule.layers._row_encoders import Bidirectional
    from chainrule.layers._sequence_layer import Map, Parallel, Residual, SequenceLayer, Serial
    from chainrule.layers._transformer_stack import TransformerBlock, TransformerStack

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveSoftmax",
    "AdditiveAttention",
    "Attention",
    "Bidirectional",
    "CausalAttention",
    "CausalConv1d",
    "CharacterEncoder",
    "CrossAttention",
    "DeltaNet",
    "DiagonalLSTM",
    "DilatedStack",
    "ImageEncoder",
    "KneserNey",
    "LearnedPositions",
    "LinearAttention",
    "LogMel",
    "Map",
    "MaskedConv2d",
    "MinGRU",
    "MinLSTM",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "Parallel",
    "PositionEmbedding",
    "Recurrent",
    "Residual",
    "RowLSTM",
    "SequenceLayer",
    "Serial",
    "ShiftedConv2d",
    "SinusoidalPositions",
    "TransformerBlock",
    "TransformerStack",
    "attention_weights",
    "chunk_decays",
    "coarse_to_fine",
    "default_cutoffs",
    "linear_scan",
    "made_degrees",
    "made_masks",
    "max_pooling",
    "mean_pooling",
    "raster_orders",
    "scaled_dot_product",
    "skew",
    "spatial_mask",
    "sum_rule",
    "visible_keys",
]

__getattr__, __dir__ = attach(__name__)
