"""Inside a trained classifier of images: where it looked, and how far attention reaches."""

from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.classify_images.options import ImageClassifierInspection
from chainrule.tasks.display import quoted
from chainrule.tasks.page import checked_page, write_page

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics.report.classifier_page import LabelledPicture
    from chainrule.tasks.classify_images.task import ClassifyImagesTask

MOST_ROWS = 4096
_DISTANCE_ROWS = 64  # whose attention is averaged


def inspect_classifier(run: "ClassifyImagesTask", options: ImageClassifierInspection, *, out: Path | None) -> Answer:
    """Inspect a run on its held-out images."""
    import numpy as np
    import torch

    from chainrule.diagnostics.attention_distance import attention_distance
    from chainrule.diagnostics.looked_at import half_share, looked_at, looking_method
    from chainrule.diagnostics.parts import parts_of, parts_table
    from chainrule.diagnostics.report.classifier_page import ClassifierReport, classifier_page
    from chainrule.tasks.classify.validation_metric import surest_mistakes

    for name, value, least in (("rows", options.rows, 1), ("examples", options.examples, 0)):
        if not least <= value <= MOST_ROWS:
            raise ValueError(f"--{name}: expected a whole number from {least} to {MOST_ROWS}, got {value}")
    page, images, model = checked_page(out, run.path), run.images(), run.model()
    assert images.valid_labels is not None
    pixels = torch.from_numpy(np.array(images.valid[: options.rows]))
    true = torch.from_numpy(np.array(images.valid_labels[: options.rows], np.int64))
    log_probs = run.label_log_probs(model, pixels)
    given = log_probs.argmax(1)
    wrong = [row for row, _, _ in surest_mistakes(log_probs, true, options.examples)]
    right = (given == true).nonzero()[: options.examples, 0].tolist()

    def shown(rows: list[int]) -> "tuple[list[LabelledPicture], Tensor]":
        if not rows:
            return [], torch.empty(0)
        maps = looked_at(model, pixels[rows], given[rows])
        return [
            _labelled(run, row, pixels, looked, log_probs, true) for row, looked in zip(rows, maps, strict=True)
        ], maps

    (mistakes, wrong_maps), (answers, right_maps) = shown(wrong), shown(right)
    with torch.no_grad():
        distances = attention_distance(model, pixels[:_DISTANCE_ROWS])
    findings = [
        f"Half of a map lies on {half_share(maps).mean():.0%} of its places, the mean over the {kind} answers below."
        for kind, maps in (("wrong", wrong_maps), ("right", right_maps))
        if len(maps)
    ]
    parts, count = parts_of(model), int((given == true).sum())
    described = f"{run.config.model} with {sum(parts.values()):,} parameters"
    accuracy = f"{count:,} of the first {len(true):,} held-out pictures have the right label, {count / len(true):.1%}."
    asked = f" --rows {options.rows} --examples {options.examples}"
    report = ClassifierReport(
        str(run.path),
        f"{described}; {run.config.facts['name']}",
        parts,
        accuracy,
        looking_method(model),
        findings,
        distances,
        mistakes,
        answers,
        f"chainrule inspect {quoted(run.path)}{asked}",
    )
    write_page(page, classifier_page(report))
    figures = {
        "run": str(run.path), "model": run.config.model, "page": str(page), "parameters": parts,
        "accuracy": count / len(true), "pictures": len(true), "method": report.method, "attention": distances,
        "wrong": [_values(picture) for picture in mistakes], "right": [_values(picture) for picture in answers],
    }  # fmt: skip
    lines = [f"{run.path}: {described}", *parts_table(parts), accuracy, f"maps: {report.method}", *findings]
    if not distances:
        lines.append("attention: none; every place reads its neighbours, wider with each stage")
    for number, heads in enumerate(distances, 1):
        each = ", ".join(f"{distance:.1f}" for distance in heads)
        lines.append(f"attention of block {number}: {each} pixels away on average, a number for each head")
    return Answer(iter([Record(figures, "\n".join([*lines, f"page: {page}"]))]))


def _labelled(
    run: "ClassifyImagesTask", row: int, pixels: "Tensor", looked: "Tensor", log_probs: "Tensor", true: "Tensor"
) -> "LabelledPicture":
    """A held-out image for the page, its values brought to 8 bits."""
    from chainrule.diagnostics.report.classifier_page import LabelledPicture

    given, brightest = int(log_probs[row].argmax()), run.config.facts["found_levels"] - 1
    picture = (pixels[row].double() * (255 / brightest)).round().byte().numpy()
    probability, right = float(log_probs[row, given].exp()), run.classes[int(true[row])]
    return LabelledPicture(f"held-out picture {row}", picture, looked, run.classes[given], probability, right)


def _values(picture: "LabelledPicture") -> dict[str, object]:
    return {
        "picture": picture.name, "given": picture.given, "probability": picture.probability, "true": picture.right,
        "looked_at": picture.looked.tolist(),
    }  # fmt: skip
