"""Inside a trained classifier of images: where it looked, and how far attention reaches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from chainrule.ranges import Range
from chainrule_app.heavy import np, torch
from chainrule_app.printing import counted
from chainrule_app.results import Report
from chainrule_app.tasks.classify.labels import surest_mistakes
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.output import inspect_again, page_report

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import ImageClassifier
    from chainrule_app.pages.image_page import LabelledImage
    from chainrule_app.tasks.classify.image_task import ClassifyImagesTask

_DISTANCE_ROWS = 64  # whose attention is averaged


@dataclass(frozen=True)
class ImageClassifierInspection(CheckedOptions):
    """Look inside a trained image classifier: where it looked for right and wrong answers, and how far it attends.

    Maps use attention rollout for vit, Grad-CAM for cnn and swin. The attention distance in pixels is weighted
    by attention. Writes a page (HTML, one file, needs no network).
    """

    rows: Annotated[int, Range(1, 4096)] = 1000
    """Number of held-out images to label."""
    examples: Annotated[int, Range(0, 4096)] = 12
    """Number of wrong answers to show, and of right ones."""


def inspect_classifier(
    run: "ClassifyImagesTask", data: str | None, options: ImageClassifierInspection, *, seed: int
) -> Report:
    if data is not None:
        raise ValueError(f"inspect reads the run's held-out images, got {data}: leave it out")

    from chainrule.diagnostics import attention_distance
    from chainrule_app.pages.attention_figures import saliency_method
    from chainrule_app.pages.image_page import classifier_sections
    from chainrule_app.pages.page import Page, parts_section
    from chainrule_app.tasks.parts import parts_of, parts_table

    images, model = run.images(), run.model()
    assert images.valid_labels is not None
    pixels = torch.from_numpy(np.array(images.valid[: options.rows]))
    true = torch.from_numpy(np.array(images.valid_labels[: options.rows], np.int64))
    log_probs = run.label_log_probs(model, pixels)
    is_right = log_probs.argmax(1) == true
    wrong = [row for row, _, _ in surest_mistakes(log_probs, true, options.examples)]
    right = is_right.nonzero()[: options.examples, 0].tolist()
    mistakes, answers = (_images(run, model, pixels, log_probs, true, rows) for rows in (wrong, right))
    with torch.no_grad():
        distances = attention_distance(model, pixels[:_DISTANCE_ROWS])
    parts, count = parts_of(model), int(is_right.sum())
    described = f"{run.config.model} with {counted(sum(parts.values()), 'parameter')}"
    accuracy = f"{count:,} of the first {len(true):,} held-out images have the right label, {count / len(true):.1%}."
    method = saliency_method(model)
    sharpness = [_sharpness(kind, examples) for kind, examples in (("wrong", mistakes), ("right", answers)) if examples]
    sections = classifier_sections([accuracy, *sharpness], method, distances, mistakes, answers)
    command = inspect_again(run, rows=options.rows, examples=options.examples)
    lead = f"{described}; {run.facts.name}"
    content = Page(f"Inside {run.path}", lead, [*sections, parts_section(parts)], command)
    figures = {
        "parameters": parts, "accuracy": count / len(true), "images": len(true), "method": method,
        "attention": distances, "wrong": [_values(image) for image in mistakes],
        "right": [_values(image) for image in answers],
    }  # fmt: skip
    lines = [*parts_table(parts), accuracy, f"maps: {method}", *sharpness]
    return page_report(run, content, figures, lines, about=described)


def _images(
    run: "ClassifyImagesTask",
    model: "ImageClassifier",
    pixels: "Tensor",
    log_probs: "Tensor",
    true: "Tensor",
    rows: list[int],
) -> "list[LabelledImage]":
    """Return images for the page, scaled to 8 bits, each with its saliency map."""
    from chainrule.diagnostics import saliency_maps
    from chainrule_app.pages.image_page import LabelledImage

    if not rows:
        return []
    predicted = log_probs.argmax(1)
    levels = (pixels[rows].double() * (255 / (run.facts.found_levels - 1))).round().byte().numpy()
    return [
        LabelledImage(
            name=f"held-out image {row}",
            image=image,
            looked=looked,
            given=run.classes[int(predicted[row])],
            probability=float(log_probs[row, predicted[row]].exp()),
            right=run.classes[int(true[row])],
        )
        for row, image, looked in zip(rows, levels, saliency_maps(model, pixels[rows], predicted[rows]), strict=True)
    ]


def _sharpness(kind: str, images: "Sequence[LabelledImage]") -> str:
    """Describe the share of a map's area that holds half of its weight."""
    from chainrule_app.pages.attention_figures import half_share

    share = half_share(torch.stack([image.looked for image in images])).mean()
    return f"Half of a map's weight lies on {share:.0%} of its area, averaged over the {kind} answers below."


def _values(image: "LabelledImage") -> dict[str, object]:
    return {
        "image": image.name, "given": image.given, "probability": image.probability, "true": image.right,
        "saliency": image.looked.tolist(),
    }  # fmt: skip
