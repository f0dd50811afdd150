"""What a page about a classifier of images shows."""

import numpy as np
import torch

from chainrule.diagnostics.looked_at import GRAD_CAM
from chainrule.diagnostics.report.classifier_page import ClassifierReport, LabelledImage


def labelled_image(place: int, given: str = "cat", right: str = "cat", channels: int = 1) -> LabelledImage:
    """An image that was looked at in its top left corner."""
    image = np.random.default_rng(place).integers(0, 256, (channels, 12, 16), dtype=np.uint8)
    looked = torch.zeros(3, 4)
    looked[0, 0] = 1
    return LabelledImage(f"<held-out> {place}", image, looked, given, 0.75, right)


def classifier_report() -> ClassifierReport:
    """Three wrong answers, two right ones."""
    wrong = [labelled_image(place, right="<dog>", channels=3) for place in range(3)]
    right = [labelled_image(place) for place in (7, 8)]
    return ClassifierReport(
        "runs/<x>", "cnn with 3 parameters", {"first": 2, "output": 1}, "5 of 8.", GRAD_CAM, ["Half of it."],
        [[1.0, 3.0], [2.5, 4.5]], wrong, right, "chainrule inspect 'runs/<x>'",
    )  # fmt: skip
