"""The report of `chainrule inspect` on a classifier of images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.image_attention import stretched
from chainrule.diagnostics.report.render import render

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
        smooth = stretched(self.looked.double().numpy(), self.image.shape[1], self.image.shape[2])
        share = (smooth - smooth.min()) / max(smooth.max() - smooth.min(), 1e-12)
        dense = OPACITY * share[:, :, None]
        return ((1 - dense) * grey + dense * HEAT).round().astype(np.uint8)


@dataclass(frozen=True)
class ClassifierReport:
    """Everything that the page shows.

    Args:
        title: name of the run.
        model: a line about it.
        parts: parameters of each of its parts.
        accuracy: a sentence about the images that were read.
        method: how the maps were made.
        findings: sentences about them.
        distances: of attention, pixels, of each block and head; empty without attention.
        wrong: images with wrong answers, the surest first.
        right: images with right answers.
        command: makes the page again.
    """

    title: str
    model: str
    parts: dict[str, int]
    accuracy: str
    method: str
    findings: Sequence[str]
    distances: Sequence[Sequence[float]]
    wrong: Sequence[LabelledImage]
    right: Sequence[LabelledImage]
    command: str


def classifier_page(report: ClassifierReport) -> str:
    """The whole page; the same arguments give the same page."""
    return render("classifier.html", report=report)
