"""One file per architecture: layers and a head."""

from chainrule.models.gated_pixel_cnn import GatedPixelCNN
from chainrule.models.image_model import ImageModel
from chainrule.models.made import MADE
from chainrule.models.made_ensemble import MADEEnsemble
from chainrule.models.pixel_cnn import PixelCNN
from chainrule.models.recurrent_lm import RecurrentLM
from chainrule.models.table_made import TableMADE
from chainrule.models.wavenet import WaveNet

__all__ = ["MADE", "GatedPixelCNN", "ImageModel", "MADEEnsemble", "PixelCNN", "RecurrentLM", "TableMADE", "WaveNet"]
