"""Architectures: layers and a head; variants of one architecture share a file."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.models._attentive_decoder import AttentiveDecoder
    from chainrule.models._autoencoder import Autoencoder
    from chainrule.models._captioner import Captioner
    from chainrule.models._forecaster import Forecaster, LinearForecaster
    from chainrule.models._gated_pixel_cnn import GatedPixelCNN
    from chainrule.models._image_classifier import ConvNet, ImageClassifier
    from chainrule.models._image_model import ImageModel
    from chainrule.models._image_transformer import ImageTransformer
    from chainrule.models._logits_model import LogitsModel
    from chainrule.models._made import MADE
    from chainrule.models._made_ensemble import MADEEnsemble
    from chainrule.models._model_mean import CalibratedMixture, Ensemble
    from chainrule.models._multi_scale_pixel_cnn import MultiScalePixelCNN
    from chainrule.models._ngram_lm import NgramLM
    from chainrule.models._pixel_cnn import PixelCNN
    from chainrule.models._pixel_cnn_pp import PixelCNNPP
    from chainrule.models._pixel_rnn import PixelRNN
    from chainrule.models._pixel_vae import PixelVAE
    from chainrule.models._recurrent_lm import RecurrentLM, VectorToSequence
    from chainrule.models._rnn_made import RNNMADE
    from chainrule.models._sentence_vae import SentenceVAE
    from chainrule.models._seq2seq import Seq2Seq
    from chainrule.models._sequence_classifier import SequenceClassifier, SequenceRegressor
    from chainrule.models._sequence_tagger import SequenceTagger
    from chainrule.models._table_made import TableMADE
    from chainrule.models._table_vae import TableVAE
    from chainrule.models._transformer_lm import TransformerLM
    from chainrule.models._transformer_seq2seq import TransformerSeq2Seq
    from chainrule.models._vae import VAE, HierarchicalVAE
    from chainrule.models._vision_transformer import CompactTransformer, SwinTransformer, VisionTransformer
    from chainrule.models._wavenet import WaveNet

__all__ = [
    "MADE",
    "RNNMADE",
    "VAE",
    "AttentiveDecoder",
    "Autoencoder",
    "CalibratedMixture",
    "Captioner",
    "CompactTransformer",
    "ConvNet",
    "Ensemble",
    "Forecaster",
    "GatedPixelCNN",
    "HierarchicalVAE",
    "ImageClassifier",
    "ImageModel",
    "ImageTransformer",
    "LinearForecaster",
    "LogitsModel",
    "MADEEnsemble",
    "MultiScalePixelCNN",
    "NgramLM",
    "PixelCNN",
    "PixelCNNPP",
    "PixelRNN",
    "PixelVAE",
    "RecurrentLM",
    "SentenceVAE",
    "Seq2Seq",
    "SequenceClassifier",
    "SequenceRegressor",
    "SequenceTagger",
    "SwinTransformer",
    "TableMADE",
    "TableVAE",
    "TransformerLM",
    "TransformerSeq2Seq",
    "VectorToSequence",
    "VisionTransformer",
    "WaveNet",
]

__getattr__, __dir__ = attach(__name__)
