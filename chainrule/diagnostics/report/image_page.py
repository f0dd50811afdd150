"""The report of `chainrule inspect` on a model of images."""

from collections.abc import Sequence

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.field_image import BEYOND, BLIND, LATER, PIXEL, STRONG, WEAK
from chainrule.diagnostics.mask_images import MaskImage
from chainrule.diagnostics.report.page import Content, Figure, Picture, Section, keys

COLOURS = {
    PIXEL: "the pixel",
    STRONG: "strong influence",
    WEAK: "a ten-thousandth of the strongest, or less",
    BLIND: "blind spot",
    BEYOND: "beyond the reach",
    LATER: "drawn later",
}
_MASKS = (
    "Each square is a tap of a kernel, the present pixel in the middle: dark taps read all features, pale ones those "
    "of some colours, light ones none. The small table next to a mask says which colour's features read which at the "
    "present pixel: rows read, columns are read."
)


def image_sections(
    findings: Sequence[str],
    field: Pixels,
    surprise: Pixels,
    surprise_words: str,
    masks: Sequence[MaskImage],
    unmasked: str,
) -> list[Content]:
    """Sections of a page.

    Args:
        findings: sentences about the receptive field.
        field: the receptive field, drawn.
        surprise: the mean nats of each pixel, drawn.
        surprise_words: a sentence about them.
        masks: of the model.
        unmasked: a sentence about layers without a mask; empty where all have one.
    """
    colours = keys((f"rgb({' '.join(map(str, colour))})", meaning) for colour, meaning in COLOURS.items())
    drawn = Picture(field, "what the pixel depends on, square by square")
    told: list[Content] = [*([_MASKS] if masks else []), *([unmasked] if unmasked else [])]
    for mask in masks:
        names = mask.layers if len(mask.layers) < 5 else (*mask.layers[:2], f"… {mask.layers[-1]}")
        picture = Picture(mask.pixels(), f"mask {mask.title}")
        told.append(Figure([picture], mask.title, [", ".join(names)], kind="single"))
    nats: list[Content] = [surprise_words, Picture(surprise, "mean nats of each pixel")]
    return [
        Section("Receptive field", [*findings, drawn, colours], "field"),
        Section("Where the nats are", nats, "surprise"),
        Section("Masks", told, "masks"),
    ]
