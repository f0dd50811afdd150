"""Building blocks without a loss."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.kernels._scan import sum_rule as sum_rule
    from chainrule.layers._adaptive_softmax import AdaptiveSoftmax as AdaptiveSoftmax
    from chainrule.layers._attention import AdditiveAttention as AdditiveAttention
    from chainrule.layers._attention import CrossAttention as CrossAttention
    from chainrule.layers._attention import MultiplicativeAttention as MultiplicativeAttention
    from chainrule.layers._causal_attention import CausalAttention as CausalAttention
    from chainrule.layers._dilated_stack import CausalConv1d as CausalConv1d
    from chainrule.layers._image_encoder import ImageEncoder as ImageEncoder
    from chainrule.layers._kneser_ney import KneserNey as KneserNey
    from chainrule.layers._lattice_lstm import DiagonalLSTM as DiagonalLSTM
    from chainrule.layers._lattice_lstm import RowLSTM as RowLSTM
    from chainrule.layers._linear_attention import DeltaNet as DeltaNet
    from chainrule.layers._linear_attention import LinearAttention as LinearAttention
    from chainrule.layers._masked_conv2d import MaskedConv2d as MaskedConv2d
    from chainrule.layers._masked_linear import made_degrees as made_degrees
    from chainrule.layers._masked_linear import made_masks as made_masks
    from chainrule.layers._minimal_recurrence import MinGRU as MinGRU
    from chainrule.layers._minimal_recurrence import MinLSTM as MinLSTM
    from chainrule.layers._minimal_recurrence import linear_scan as linear_scan
    from chainrule.layers._multi_head_attention import MultiHeadAttention as MultiHeadAttention
    from chainrule.layers._multi_head_attention import attention_weights as attention_weights
    from chainrule.layers._multi_head_attention import scaled_dot_product as scaled_dot_product
    from chainrule.layers._multi_head_attention import visible_keys as visible_keys
    from chainrule.layers._ngrams import NgramScores as NgramScores
    from chainrule.layers._positions import LearnedPositions as LearnedPositions
    from chainrule.layers._positions import SinusoidalPositions as SinusoidalPositions
    from chainrule.layers._recurrent import Recurrent as Recurrent
    from chainrule.layers._recurrent_stack import GRU as GRU
    from chainrule.layers._recurrent_stack import LSTM as LSTM
    from chainrule.layers._recurrent_stack import RNN as RNN
    from chainrule.layers._row_encoders import Bidirectional as Bidirectional
    from chainrule.layers._sequence_layer import Map as Map
    from chainrule.layers._sequence_layer import Parallel as Parallel
    from chainrule.layers._sequence_layer import Residual as Residual
    from chainrule.layers._sequence_layer import SequenceLayer as SequenceLayer
    from chainrule.layers._sequence_layer import Serial as Serial
    from chainrule.layers._transformer_stack import TransformerBlock as TransformerBlock
    from chainrule.layers._transformer_stack import TransformerStack as TransformerStack
    from chainrule.layers._word_forms import CharacterEncoder as CharacterEncoder
    from chainrule.layers._word_forms import TemplateScores as TemplateScores

__getattr__, __dir__ = attach(__name__)
