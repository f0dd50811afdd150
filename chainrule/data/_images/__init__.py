"""Images on disk become integers (C, H, W): folders, arrays, idx files; fewer bits; batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._images.batches import image_batch, image_batches, image_evaluation
    from chainrule.data._images.folder import ImageFolder, Reading
    from chainrule.data._images.prepare import (
        PreparedImages,
        check_alike,
        format_shape,
        is_collection,
        open_images,
        open_source,
        prepare_images,
        source_fingerprint,
    )
    from chainrule.data._images.source import (
        Binarise,
        ImageLabels,
        ImageSource,
        Reduction,
        block_image,
        brightness,
        grid,
        png,
        spread_over,
    )
    from chainrule.data._kinds import is_images

__all__ = [
    "Binarise",
    "ImageFolder",
    "ImageLabels",
    "ImageSource",
    "PreparedImages",
    "Reading",
    "Reduction",
    "block_image",
    "brightness",
    "check_alike",
    "format_shape",
    "grid",
    "image_batch",
    "image_batches",
    "image_evaluation",
    "is_collection",
    "is_images",
    "open_images",
    "open_source",
    "png",
    "prepare_images",
    "source_fingerprint",
    "spread_over",
]

__getattr__, __dir__ = attach(__name__)
