"""One file per architecture: layers and a head."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.models.autoencoder import Autoencoder
    from chainrule.models.calibrated_mixture import CalibratedMixture
    from chainrule.models.captioner import Captioner
    from chainrule.models.compact_transformer import CompactTransformer
    from chainrule.models.conv_net import ConvNet
    from chainrule.models.ensemble import Ensemble
    from chainrule.models.forecaster import Forecaster
    from chainrule.models.gated_pixel_cnn import GatedPixelCNN
    from chainrule.models.hierarchical_vae import HierarchicalVAE
    from chainrule.models.image_classifier import ImageClassifier
    from chainrule.models.image_model import ImageModel
    from chainrule.models.image_transformer import ImageTransformer
    from chainrule.models.linear_forecaster import LinearForecaster
    from chainrule.models.logits_model import LogitsModel, from_logits
    from chainrule.models.made import MADE
    from chainrule.models.made_ensemble import MADEEnsemble
    from chainrule.models.multi_scale_pixel_cnn import MultiScalePixelCNN
    from chainrule.models.ngram_lm import NgramLM
    from chainrule.models.pixel_cnn import PixelCNN
    from chainrule.models.pixel_cnn_pp import PixelCNNPP
    from chainrule.models.pixel_rnn import PixelRNN
    from chainrule.models.pixel_vae import PixelVAE
    from chainrule.models.recurrent_lm import RecurrentLM
    from chainrule.models.rnn_made import RNNMADE, MADEConditional
    from chainrule.models.sentence_vae import SentenceVAE
    from chainrule.models.seq2seq import Seq2Seq
    from chainrule.models.sequence_classifier import SequenceClassifier
    from chainrule.models.sequence_regressor import SequenceRegressor
    from chainrule.models.sequence_tagger import SequenceTagger
    from chainrule.models.series_scaling import SeriesScaling
    from chainrule.models.swin_transformer import SwinTransformer
    from chainrule.models.table_made import TableMADE
    from chainrule.models.table_vae import TableVAE
    from chainrule.models.transformer_lm import TransformerLM
    from chainrule.models.transformer_seq2seq import TransformerSeq2Seq
    from chainrule.models.vae import VAE
    from chainrule.models.vector_to_sequence import VectorToSequence
    from chainrule.models.vision_transformer import VisionTransformer
    from chainrule.models.wavenet import WaveNet

__all__ = [
    "MADE",
    "RNNMADE",
    "VAE",
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
    "MADEConditional",
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
    "SeriesScaling",
    "SwinTransformer",
    "TableMADE",
    "TableVAE",
    "TransformerLM",
    "TransformerSeq2Seq",
    "VectorToSequence",
    "VisionTransformer",
    "WaveNet",
    "from_logits",
]

__getattr__, __dir__ = attach(__name__)
