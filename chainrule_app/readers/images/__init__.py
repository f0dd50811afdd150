"""Images on disk become integers (C, H, W): folders, arrays, idx files; fewer bits; batches."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.readers.images.batches import image_batch as image_batch
    from chainrule_app.readers.images.batches import image_batches as image_batches
    from chainrule_app.readers.images.batches import image_evaluation as image_evaluation
    from chainrule_app.readers.images.folder import Reading as Reading
    from chainrule_app.readers.images.prepare import PreparedImages as PreparedImages
    from chainrule_app.readers.images.prepare import check_alike as check_alike
    from chainrule_app.readers.images.prepare import format_shape as format_shape
    from chainrule_app.readers.images.prepare import is_collection as is_collection
    from chainrule_app.readers.images.prepare import open_images as open_images
    from chainrule_app.readers.images.prepare import open_source as open_source
    from chainrule_app.readers.images.prepare import prepare_images as prepare_images
    from chainrule_app.readers.images.prepare import read_image as read_image
    from chainrule_app.readers.images.prepare import source_fingerprint as source_fingerprint
    from chainrule_app.readers.images.source import ImageSource as ImageSource
    from chainrule_app.readers.images.source import Reduction as Reduction
    from chainrule_app.readers.images.source import block_image as block_image
    from chainrule_app.readers.images.source import brightness as brightness
    from chainrule_app.readers.images.source import grid as grid
    from chainrule_app.readers.images.source import png as png
    from chainrule_app.readers.images.source import spread_over as spread_over
    from chainrule_app.readers.sources import is_images as is_images

__getattr__, __dir__ = attach(__name__)
