"""Models for special uses, which nothing else in the library needs."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.models.rare._made_ensemble import MADEEnsemble as MADEEnsemble
    from chainrule.models.rare._multi_scale_pixel_cnn import MultiScalePixelCNN as MultiScalePixelCNN
    from chainrule.models.rare._multi_scale_pixel_cnn import coarse_to_fine as coarse_to_fine

__getattr__, __dir__ = attach(__name__)
