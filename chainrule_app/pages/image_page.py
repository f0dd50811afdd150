"""The report of `chainrule inspect` on a model or a classifier of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.diagnostics import ReceptiveField
from chainrule.layers import MaskedConv2d
from chainrule_app.pages.attention_figures import stretched
from chainrule_app.pages.page import Content, Figure, Group, Picture, Section, Table, keys, marked
from chainrule_app.readers.images.source import Pixels

_CELL = 14  # pixels of a drawn weight
_ALLOWED, _PART, _MASKED, _LINE = (0, 114, 178), (146, 196, 226), (238, 239, 241), (150, 154, 160)
Colour = tuple[int, int, int]
WEAK, STRONG = (208, 225, 242), (8, 48, 107)  # of the influence, on a logarithmic scale
BLIND, BEYOND, LATER, PIXEL = (213, 94, 0), (255, 255, 255), (190, 193, 198), (0, 0, 0)
DECADES = 4.0  # below the largest influence, beyond which all is drawn alike
_LEAST = 280  # pixels of the drawing's width, at least
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


@dataclass(frozen=True)
class MaskImage:
    """Mask, and the layers that use it."""

    layers: tuple[str, ...]
    mask_type: str  # "A", which excludes the current pixel, or "B"
    taps: Tensor  # (height, width) share of channel pairs that each tap connects
    groups: Tensor  # (G, G) booleans: a colour's features read another's at the current pixel

    @property
    def title(self) -> str:
        height, width = self.taps.shape
        count = f"{len(self.layers)} layers" if len(self.layers) > 1 else "1 layer"
        return f"type {self.mask_type}, {height}×{width}, {count}"

    def pixels(self) -> Pixels:
        """Draw the taps as squares, (H', W', 3), with the channel table to the right if there are several colours."""
        taps = _squares(self.taps)
        if self.groups.numel() == 1:
            return taps
        table = _squares(self.groups.double())
        height = max(len(taps), len(table))
        parts = [np.pad(part, ((0, height - len(part)), (0, 8), (0, 0)), constant_values=255) for part in (taps, table)]
        return np.concatenate(parts, 1)


def mask_images(model: nn.Module) -> list[MaskImage]:
    """List the distinct masks of a model's convolutions, in order of first use."""
    masks: dict[tuple[object, ...], tuple[list[str], MaskedConv2d]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, MaskedConv2d):
            height, width = layer.mask.shape[2:]
            masks.setdefault((layer.mask_type, height, width, layer.channel_groups), ([], layer))[0].append(name)
    return [_image(tuple(names), layer) for names, layer in masks.values()]


def _image(names: tuple[str, ...], layer: MaskedConv2d) -> MaskImage:
    mask = layer.mask.cpu().double()
    outputs, inputs = (groups.cpu() for groups in layer.groups_of_channels())
    centre = layer.mask[:, :, mask.shape[2] // 2, mask.shape[3] // 2].cpu()
    colours = torch.arange(layer.channel_groups, device="cpu")
    groups = torch.stack(
        [torch.stack([centre[outputs == reader][:, inputs == read].any() for read in colours]) for reader in colours]
    )
    return MaskImage(names, layer.mask_type, mask.mean((0, 1)), groups)


def _squares(shares: Tensor) -> Pixels:
    """Draw squares between lines: allowed, partly allowed, masked."""
    height, width = shares.shape
    drawn = np.full((height * _CELL + 1, width * _CELL + 1, 3), _LINE, np.uint8)
    for row in range(height):
        for column in range(width):
            share = float(shares[row, column])
            colour = _ALLOWED if share == 1 else _PART if share > 0 else _MASKED
            square = drawn[row * _CELL + 1 : (row + 1) * _CELL, column * _CELL + 1 : (column + 1) * _CELL]
            square[:] = colour
    return drawn


def field_image(field: ReceptiveField) -> Pixels:
    """Draw the pixels that a pixel depends on, (H', W', 3), one square per pixel."""
    influence = field.influence.amax(0)  # (H, W)
    strength = (1 + (influence / influence.max().clamp_min(1e-300)).clamp_min(1e-300).log10() / DECADES).clamp(0, 1)
    weak, strong = (
        torch.tensor(WEAK, dtype=torch.float64, device="cpu"),
        torch.tensor(STRONG, dtype=torch.float64, device="cpu"),
    )
    drawn = weak + strength.unsqueeze(-1) * (strong - weak)
    permitted, reached, blind = (part.any(0) for part in (field.permitted, field.reached, field.blind_spot))
    drawn[~reached & permitted] = torch.tensor(BEYOND, dtype=torch.float64, device="cpu")
    drawn[blind & ~reached] = torch.tensor(BLIND, dtype=torch.float64, device="cpu")
    drawn[~reached & ~permitted] = torch.tensor(LATER, dtype=torch.float64, device="cpu")
    row, column = pixel_of(field)
    drawn[row, column] = torch.tensor(PIXEL, dtype=torch.float64, device="cpu")
    scale = max(3, -(-_LEAST // influence.shape[1]))
    squares = np.asarray(drawn.round()).astype(np.uint8).repeat(scale, 0).repeat(scale, 1)
    squares[::scale], squares[:, ::scale] = squares[::scale] // 8 * 7, squares[:, ::scale] // 8 * 7  # thin lines
    return squares


def pixel_of(field: ReceptiveField) -> tuple[int, int]:
    """Return the row and column of the field's element, in raster order."""
    channels, _, width = field.influence.shape
    return divmod(field.position // channels, width)


def blind_side(field: ReceptiveField) -> str:
    """Describe the side of the blind spot; empty without one."""
    places = field.blind_spot.any(0).nonzero().double()
    if not len(places):
        return ""
    row, column = pixel_of(field)
    if bool((places[:, 1] < column).any()) and bool((places[:, 1] > column).any()):
        return "to both sides"
    up, aside = row - float(places[:, 0].mean()), float(places[:, 1].mean()) - column
    return f"to the {'upper ' if up > 0.5 else ''}{'right' if aside > 0 else 'left'}"


def image_sections(
    findings: Sequence[str],
    field: Pixels,
    surprise: Pixels,
    surprise_words: str,
    masks: Sequence[MaskImage],
    unmasked: str,
) -> list[Content]:
    colours = keys((f"rgb({' '.join(map(str, colour))})", meaning) for colour, meaning in COLOURS.items())
    drawn = Picture(field, "what the pixel depends on, square by square")
    parts: list[Content] = [*([_MASKS] if masks else []), *([unmasked] if unmasked else [])]
    for mask in masks:
        names = mask.layers if len(mask.layers) < 5 else (*mask.layers[:2], f"… {mask.layers[-1]}")
        picture = Picture(mask.pixels(), f"mask {mask.title}")
        parts.append(Figure([picture], mask.title, [", ".join(names)], kind="single"))
    nats: list[Content] = [surprise_words, Picture(surprise, "mean nats of each pixel")]
    return [
        Section("Receptive field", [*findings, drawn, colours], "field"),
        Section("Where the nats are", nats, "surprise"),
        Section("Masks", parts, "masks"),
    ]


HEAT = np.array([240.0, 96.0, 0.0])  # orange over grey
OPACITY = 0.75  # where the map is greatest


@dataclass(frozen=True)
class LabelledImage:
    """Image with its answer, and a map of where the classifier looked."""

    name: str
    image: Pixels  # (C, H, W) of 8 bits
    looked: Tensor  # (rows, columns) saliency shares, or all 0
    given: str
    probability: float
    right: str

    @property
    def pixels(self) -> Pixels:
        """Return the image as (H, W) or (H, W, C)."""
        return self.image[0] if len(self.image) == 1 else self.image.transpose(1, 2, 0)

    @property
    def heat(self) -> Pixels:
        """Overlay the grey image with the map in orange, (H, W, 3)."""
        grey = self.image.astype(np.float64).mean(0)[:, :, None]
        smooth = stretched(self.looked, self.image.shape[1], self.image.shape[2])
        share = (smooth - smooth.min()) / max(smooth.max() - smooth.min(), 1e-12)
        dense = OPACITY * share[:, :, None]
        return ((1 - dense) * grey + dense * HEAT).round().astype(np.uint8)

    @property
    def figure(self) -> Figure:
        wrong = "" if self.given == self.right else f", is {self.right}"
        answer = marked('{} <span class="note">{:.1f}%{}</span>', self.given, 100 * self.probability, wrong)
        heat = Picture(self.heat, f"where the classifier looked at {self.name}", filling=True)
        return Figure([Picture(self.pixels, self.name, filling=True), heat], answer, [self.name], kind="pair")


def classifier_sections(
    findings: Sequence[str],
    method: str,
    distances: Sequence[Sequence[float]],
    wrong: Sequence[LabelledImage],
    right: Sequence[LabelledImage],
) -> list[Content]:
    maps = marked(
        "<p>The map with each image is by {}. It is clear where it is least and "
        '<span style="color:rgb(200 80 0)">orange</span> where it is greatest, in each image by itself.</p>',
        method,
    )
    reach: list[Content] = ["This model has no attention: every place reads its neighbours, wider with each stage."]
    if distances:
        rows = [
            [str(block), f"{fmean(heads):.1f}", ", ".join(f"{distance:.1f}" for distance in heads)]
            for block, heads in enumerate(distances, 1)
        ]
        words = "The mean distance in pixels between a place and those that it reads, weighted by attention"
        reach = [f"{words} (Dosovitskiy et al. 2021).", Table(["block", "all heads", "each head"], rows)]
    return [
        Section("Where it looked", [*findings[:1], maps, *findings[1:]], "looked"),
        Section("Wrong answers, the surest first", [_shown(wrong)], "wrong"),
        Section("Right answers", [_shown(right)], "right"),
        Section("How far attention reaches", reach, "distance"),
    ]


def _shown(images: Sequence[LabelledImage]) -> Content:
    return Group("images", [image.figure for image in images]) if images else "None of the images that were read."
