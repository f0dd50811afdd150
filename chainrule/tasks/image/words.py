"""A run on images in words: its data, and its best validation."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainrule.tasks.image.task import ImageTask


def introduction(run: "ImageTask") -> Iterator[str]:
    """Lines that describe the data of a run."""
    from chainrule.data.images import format_shape

    facts = run.config.facts
    counts = facts["images"]
    yield f"{facts['name']}: images of {format_shape(run.shape)}; {run.reduction}; {describe_labels(run.classes)}"
    held_out = facts["validation"]["name"] if facts["validation"] else f"drawn, seed {run.config.training.seed}"
    yield f"{counts['train']:,} images to train on, {counts['valid']:,} held out ({held_out})"
    for count, what in (
        (facts["scaled_to_8_bits"], "of 16 bits, scaled to 8"),
        (facts["put_on_white"], "transparent, put on white"),
    ):
        if count:
            yield f"{count:,} images are {what}"
    left_out = facts["left_out"]
    if left_out["count"]:
        names = ", ".join(left_out["names"][:5]) + (", ..." if left_out["count"] > 5 else "")
        yield f"{left_out['count']} image files cannot be read and are left out: {names}"


def best_figures(run: "ImageTask", nats_per_element: float) -> dict[str, float]:
    """The figures of held-out images, ready for JSON."""
    from chainrule.training import units

    if run.basis.quantity != "nats":  # an autoencoder maximises minus half the squared error
        return {"mean_squared_error": 2 * nats_per_element}
    nats = nats_per_element * run.dimensions
    return {"nats_per_image": nats, "bits_per_dimension": units.bits(nats_per_element)}


def best_words(run: "ImageTask", nats_per_element: float, part: str = "") -> str:
    """The figures of held-out images in words; `part` says which of them where that is not all."""
    figures = best_figures(run, nats_per_element)
    given = ", given their labels" if run.conditions else ""
    of = f"the {part}held-out images{given} ({run.reduction})"
    if run.basis.quantity != "nats":
        return f"mean squared error {figures['mean_squared_error']:.6f} of values from 0 to 1 on {of}"
    bound = "at most " if run.basis.kind == "bound" else ""
    return (
        f"{bound}{figures['nats_per_image']:.2f} nats per image, {figures['bits_per_dimension']:.4f} bits/dim on {of}"
    )


def describe_labels(classes: tuple[str, ...] | None) -> str:
    """
    >>> describe_labels(("cat", "dog")), describe_labels(None)
    ('2 labels: cat, dog', 'no labels')
    """
    if classes is None:
        return "no labels"
    return f"{len(classes)} labels: {', '.join(classes[:10])}" + (", ..." if len(classes) > 10 else "")
