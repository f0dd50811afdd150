"""The report of `chainrule inspect` on a model of images."""

from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.field_image import BEYOND, BLIND, LATER, PIXEL, STRONG, WEAK
from chainrule.diagnostics.mask_images import MaskImage
from chainrule.diagnostics.report.render import render

COLOURS = {
    PIXEL: "the pixel",
    STRONG: "strong influence",
    WEAK: "a ten-thousandth of the strongest, or less",
    BLIND: "blind spot",
    BEYOND: "beyond the reach",
    LATER: "drawn later",
}


@dataclass(frozen=True)
class ImageReport:
    """Everything that the page shows.

    Args:
        title: the name of the run.
        model: a line about it.
        findings: sentences about the receptive field.
        field: the receptive field, drawn.
        surprise: the mean nats of each pixel, drawn.
        surprise_words: a sentence about them.
        masks: of the model.
        unmasked: a sentence about layers without a mask; empty where all have one.
        command: makes the page again.
    """

    title: str
    model: str
    findings: Sequence[str]
    field: Pixels
    surprise: Pixels
    surprise_words: str
    masks: Sequence[MaskImage]
    unmasked: str
    command: str


def image_page(report: ImageReport) -> str:
    """The whole page; the same arguments give the same page."""
    return render("image.html", report=report, colours=COLOURS.items())
