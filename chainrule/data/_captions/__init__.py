"""Captioned images: read, prepared and batched."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._captions.prepare import (
        Caption,
        CaptionedImages,
        ImageStore,
        PreparedCaptions,
        caption_batches,
        caption_evaluation,
        captions_by_image,
        captions_in,
        open_captions,
        prepare_captions,
        read_captions,
        store_fingerprint,
    )

__all__ = [
    "Caption",
    "CaptionedImages",
    "ImageStore",
    "PreparedCaptions",
    "caption_batches",
    "caption_evaluation",
    "captions_by_image",
    "captions_in",
    "open_captions",
    "prepare_captions",
    "read_captions",
    "store_fingerprint",
]

__getattr__, __dir__ = attach(__name__)
