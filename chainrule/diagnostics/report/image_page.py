"""The report of `chainrule inspect` on a model of pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from chainrule.data.images.png import png
from chainrule.data.images.source import Pixels
from chainrule.diagnostics.field_picture import BEYOND, BLIND, LATER, PIXEL, STRONG, WEAK, Colour
from chainrule.diagnostics.mask_pictures import MaskPicture
from chainrule.diagnostics.report.indexed_png import data_address
from chainrule.diagnostics.report.plain_page import plain_page


@dataclass(frozen=True)
class ImageReport:
    """What there is to show.

    Args:
        title: the name of the run.
        model: what it is, in a line.
        findings: sentences about the receptive field.
        field: its drawing.
        surprise: the mean nats of each pixel, drawn.
        surprise_words: what is to be said of it.
        masks: of the model.
        unmasked: what is to be said of layers without a mask.
        command: that makes the page again.
    """

    title: str
    model: str
    findings: Sequence[str]
    field: Pixels
    surprise: Pixels
    surprise_words: str
    masks: Sequence[MaskPicture]
    unmasked: str
    command: str


def image_page(report: ImageReport) -> str:
    """The whole page; the same arguments give the same page."""
    findings = "".join(f"<p>{escape(line)}</p>" for line in report.findings)
    legend = " ".join(
        f'<span class="key">{_swatch(colour)} {escape(meaning)}</span>'
        for colour, meaning in (
            (PIXEL, "the pixel"), (STRONG, "strong influence"), (WEAK, "a ten-thousandth of the strongest, or less"),
            (BLIND, "blind spot"), (BEYOND, "beyond the reach"), (LATER, "drawn later"),
        )
    )  # fmt: skip
    body = [
        f"<h1>Inside {escape(report.title)}</h1>",
        f'<p class="lead">{escape(report.model)}</p>',
        f'<section id="field"><h2>Receptive field</h2>{findings}'
        f"{_picture(report.field, 'what the pixel depends on, square by square')}"
        f'<p class="legend">{legend}</p></section>',
        f'<section id="surprise"><h2>Where the nats are</h2><p>{escape(report.surprise_words)}</p>'
        f"{_picture(report.surprise, 'mean nats of each pixel')}</section>",
        _masks(report),
        f'<p class="note">Made by <code>{escape(report.command)}</code></p>',
    ]
    return plain_page(f"Inside {report.title}", body)


def _masks(report: ImageReport) -> str:
    figures = "".join(
        f'<figure class="single"><figcaption>{escape(mask.title)}</figcaption>'
        f'{_picture(mask.pixels(), f"mask {mask.title}")}<p class="note">{escape(_names(mask.layers))}</p></figure>'
        for mask in report.masks
    )
    explained = (
        "<p>Each square is a tap of a kernel, the present pixel in the middle: dark taps read all features, pale ones "
        "those of some colours, light ones none. The small table beside a mask says which colour's features read which "
        "at the present pixel: rows read, columns are read.</p>"
    )
    note = f"<p>{escape(report.unmasked)}</p>" if report.unmasked else ""
    return f'<section id="masks"><h2>Masks</h2>{explained if report.masks else ""}{note}{figures}</section>'


def _names(layers: Sequence[str]) -> str:
    return ", ".join(layers) if len(layers) < 5 else f"{layers[0]}, {layers[1]}, … {layers[-1]}"


def _picture(pixels: Pixels, description: str) -> str:
    style = f"width:{pixels.shape[1]}px;max-width:100%;image-rendering:pixelated"
    return f'<img src="{data_address(png(pixels))}" alt="{escape(description)}" style="{style}">'


def _swatch(colour: Colour) -> str:
    red, green, blue = colour
    shade = f"background:rgb({red} {green} {blue});border:1px solid #888;display:inline-block;width:1em;height:1em"
    return f'<span style="{shade}"></span>'
