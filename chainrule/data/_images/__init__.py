"""Images on disk become integers (C, H, W): folders, arrays, idx files; fewer bits; batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._images.batches import image_batch as image_batch
    from chainrule.data._images.batches import image_batches as image_batches
    from chainrule.data._images.batches import image_evaluation as image_evaluation
    from chainrule.data._images.folder import Reading as Reading
    from chainrule.data._images.prepare import PreparedImages as PreparedImages
    from chainrule.data._images.prepare import check_alike as check_alike
    from chainrule.data._images.prepare import format_shape as format_shape
    from chainrule.data._images.prepare import is_collection as is_collection
    from chainrule.data._images.prepare import open_images as open_images
    from chainrule.data._images.prepare import open_source as open_source
    from chainrule.data._images.prepare import prepare_images as prepare_images
    from chainrule.data._images.prepare import source_fingerprint as source_fingerprint
    from chainrule.data._images.source import ImageSource as ImageSource
    from chainrule.data._images.source import Reduction as Reduction
    from chainrule.data._images.source import block_image as block_image
    from chainrule.data._images.source import brightness as brightness
    from chainrule.data._images.source import grid as grid
    from chainrule.data._images.source import png as png
    from chainrule.data._images.source import spread_over as spread_over
    from chainrule.data._kinds import is_images as is_images

__getattr__, __dir__ = attach(__name__)
