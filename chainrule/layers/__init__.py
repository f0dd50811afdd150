"""Building blocks without a loss."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.layers.activations import concatenated_elu
    from chainrule.layers.adaptive_softmax import AdaptiveSoftmax, default_cutoffs
    from chainrule.layers.attention import AdditiveAttention, Attention, MultiplicativeAttention
    from chainrule.layers.bidirectional import Bidirectional
    from chainrule.layers.causal_attention import CausalAttention
    from chainrule.layers.causal_conv1d import CausalConv1d
    from chainrule.layers.character_encoder import CharacterEncoder
    from chainrule.layers.combinators import Map, Parallel, Residual, Serial
    from chainrule.layers.decoder_block import CrossAttention, DecoderBlock
    from chainrule.layers.delta_net import DeltaNet
    from chainrule.layers.diagonal_lstm import DiagonalLSTM
    from chainrule.layers.dilated_stack import DilatedStack
    from chainrule.layers.feed_forward import FeedForward
    from chainrule.layers.gated_pyramid import GatedPyramid
    from chainrule.layers.gated_residual_block import GatedResidualBlock
    from chainrule.layers.gated_stacks import GatedStacks
    from chainrule.layers.group_network import GroupNetwork
    from chainrule.layers.gru import GRU
    from chainrule.layers.kneser_ney import KneserNey
    from chainrule.layers.linear_attention import LinearAttention
    from chainrule.layers.log_mel import LogMel
    from chainrule.layers.lstm import LSTM
    from chainrule.layers.masked_conv2d import MaskedConv2d
    from chainrule.layers.masked_linear import MaskedLinear
    from chainrule.layers.masked_residual_block import MaskedResidualBlock
    from chainrule.layers.minimal_recurrence import MinGRU, MinLSTM
    from chainrule.layers.multi_head_attention import MultiHeadAttention
    from chainrule.layers.ngram_embedding import NgramEmbedding
    from chainrule.layers.ngram_scores import NgramScores
    from chainrule.layers.pixel_logits import PixelLogits
    from chainrule.layers.pooling import AttentionPooling, max_pooling, mean_pooling
    from chainrule.layers.positions import LearnedPositions, PositionEmbedding, SinusoidalPositions
    from chainrule.layers.raster_layer import RasterLayer
    from chainrule.layers.recurrent import Recurrent
    from chainrule.layers.rnn import RNN
    from chainrule.layers.row_lstm import RowLSTM
    from chainrule.layers.scan import linear_scan
    from chainrule.layers.sequence_layer import LayerStep, SequenceLayer
    from chainrule.layers.shifted_convolutions import ShiftedConv2d, ShiftedUpsampling
    from chainrule.layers.template_scores import TemplateScores
    from chainrule.layers.transformer_encoder import BidirectionalAttention, EncoderBlock, TransformerEncoder
    from chainrule.layers.transformer_stack import TransformerBlock, TransformerStack
    from chainrule.layers.word_form import AffixEmbedding, WordForm

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveSoftmax",
    "AdditiveAttention",
    "AffixEmbedding",
    "Attention",
    "AttentionPooling",
    "Bidirectional",
    "BidirectionalAttention",
    "CausalAttention",
    "CausalConv1d",
    "CharacterEncoder",
    "CrossAttention",
    "DecoderBlock",
    "DeltaNet",
    "DiagonalLSTM",
    "DilatedStack",
    "EncoderBlock",
    "FeedForward",
    "GatedPyramid",
    "GatedResidualBlock",
    "GatedStacks",
    "GroupNetwork",
    "KneserNey",
    "LayerStep",
    "LearnedPositions",
    "LinearAttention",
    "LogMel",
    "Map",
    "MaskedConv2d",
    "MaskedLinear",
    "MaskedResidualBlock",
    "MinGRU",
    "MinLSTM",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "NgramEmbedding",
    "NgramScores",
    "Parallel",
    "PixelLogits",
    "PositionEmbedding",
    "RasterLayer",
    "Recurrent",
    "Residual",
    "RowLSTM",
    "SequenceLayer",
    "Serial",
    "ShiftedConv2d",
    "ShiftedUpsampling",
    "SinusoidalPositions",
    "TemplateScores",
    "TransformerBlock",
    "TransformerEncoder",
    "TransformerStack",
    "WordForm",
    "concatenated_elu",
    "default_cutoffs",
    "linear_scan",
    "max_pooling",
    "mean_pooling",
]

__getattr__, __dir__ = attach(__name__)
