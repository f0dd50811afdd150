"""Architectures: layers and a head; variants of one architecture share a file."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.models._forecast_mixture import ForecastMixture as ForecastMixture
    from chainrule.models._forecaster import Forecaster as Forecaster
    from chainrule.models._forecaster import LinearForecaster as LinearForecaster
    from chainrule.models._image_classifier import ConvNet as ConvNet
    from chainrule.models._image_classifier import ImageClassifier as ImageClassifier
    from chainrule.models._image_model import ImageModel as ImageModel
    from chainrule.models._image_transformer import ImageTransformer as ImageTransformer
    from chainrule.models._made import MADE as MADE
    from chainrule.models._model_mean import CalibratedMixture as CalibratedMixture
    from chainrule.models._model_mean import Ensemble as Ensemble
    from chainrule.models._multi_scale_pixel_cnn import MultiScalePixelCNN as MultiScalePixelCNN
    from chainrule.models._ngram_lm import NgramLM as NgramLM
    from chainrule.models._pixel_cnn import GatedPixelCNN as GatedPixelCNN
    from chainrule.models._pixel_cnn import PixelCNN as PixelCNN
    from chainrule.models._pixel_cnn_pp import PixelCNNPP as PixelCNNPP
    from chainrule.models._pixel_rnn import PixelRNN as PixelRNN
    from chainrule.models._pixel_vae import PixelVAE as PixelVAE
    from chainrule.models._recurrent_lm import RecurrentLM as RecurrentLM
    from chainrule.models._recurrent_lm import VectorToSequence as VectorToSequence
    from chainrule.models._rnn_made import RNNMADE as RNNMADE
    from chainrule.models._seq2seq import Captioner as Captioner
    from chainrule.models._seq2seq import Seq2Seq as Seq2Seq
    from chainrule.models._sequence_classifier import SequenceClassifier as SequenceClassifier
    from chainrule.models._sequence_regressor import SequenceRegressor as SequenceRegressor
    from chainrule.models._sequence_tagger import SequenceTagger as SequenceTagger
    from chainrule.models._series_window import SeriesScaling as SeriesScaling
    from chainrule.models._table_ensemble import TableEnsemble as TableEnsemble
    from chainrule.models._table_made import TableMADE as TableMADE
    from chainrule.models._table_neighbours import TableNeighbours as TableNeighbours
    from chainrule.models._transformer_lm import TransformerLM as TransformerLM
    from chainrule.models._transformer_seq2seq import TransformerSeq2Seq as TransformerSeq2Seq
    from chainrule.models._vae import VAE as VAE
    from chainrule.models._vae import Autoencoder as Autoencoder
    from chainrule.models._vision_transformer import SwinTransformer as SwinTransformer
    from chainrule.models._vision_transformer import VisionTransformer as VisionTransformer
    from chainrule.models._wavenet import WaveNet as WaveNet

__getattr__, __dir__ = attach(__name__)
