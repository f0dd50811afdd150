"""The report of `chainrule inspect` on a classifier of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from torch import Tensor

from chainrule._app.pages.page import Content, Figure, Group, Picture, Section, Table
from chainrule._app.pages.render import marked
from chainrule.data._images.source import Pixels
from chainrule.diagnostics._attention_maps import stretched

HEAT = np.array([240.0, 96.0, 0.0])  # orange over grey
OPACITY = 0.75  # where the map is greatest


@dataclass(frozen=True)
class LabelledImage:
    """One image, its answer, and where the classifier looked.

    Args:
        name: of the image.
        image: (C, H, W) of 8 bits.
        looked: (rows, columns) shares, or all 0.
        given: the label given.
        probability: of that label.
        right: the image's own label.
    """

    name: str
    image: Pixels
    looked: Tensor
    given: str
    probability: float
    right: str

    @property
    def pixels(self) -> Pixels:
        """The image, (H, W, C), without the last axis where it is grey."""
        return self.image[0] if len(self.image) == 1 else self.image.transpose(1, 2, 0)

    @property
    def heat(self) -> Pixels:
        """The image in grey under the map in orange, (H, W, 3): clear where that is least."""
        grey = self.image.astype(np.float64).mean(0)[:, :, None]
        smooth = stretched(self.looked, self.image.shape[1], self.image.shape[2])
        share = (smooth - smooth.min()) / max(smooth.max() - smooth.min(), 1e-12)
        dense = OPACITY * share[:, :, None]
        return ((1 - dense) * grey + dense * HEAT).round().astype(np.uint8)

    @property
    def figure(self) -> Figure:
        """Both under the answer."""
        wrong = "" if self.given == self.right else f", is {self.right}"
        answer = marked('{} <span class="note">{:.1f}%{}</span>', self.given, 100 * self.probability, wrong)
        heat = Picture(self.heat, f"where the classifier looked at {self.name}", filling=True)
        return Figure([Picture(self.pixels, self.name, filling=True), heat], answer, [self.name], kind="pair")


def classifier_sections(
    found: Sequence[str],
    method: str,
    distances: Sequence[Sequence[float]],
    wrong: Sequence[LabelledImage],
    right: Sequence[LabelledImage],
) -> list[Content]:
    """Sections of a page.

    Args:
        found: sentences about the images that were read, the first about all answers.
        method: how the maps were made.
        distances: of attention, pixels, of each block and head; empty without attention.
        wrong: images with wrong answers, the surest first.
        right: images with right answers.
    """
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
        Section("Where it looked", [*found[:1], maps, *found[1:]], "looked"),
        Section("Wrong answers, the surest first", [_shown(wrong)], "wrong"),
        Section("Right answers", [_shown(right)], "right"),
        Section("How far attention reaches", reach, "distance"),
    ]


def _shown(images: Sequence[LabelledImage]) -> Content:
    return Group("images", [image.figure for image in images]) if images else "None of the images that were read."
