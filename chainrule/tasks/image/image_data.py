"""How images are read, and a run on them, whatever is modelled."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from chainrule.tasks.config import FINGERPRINT, RunConfig, SplitOptions, check_entries, within
from chainrule.tasks.display import Switch, size_of
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.task import M, Task

if TYPE_CHECKING:
    from chainrule.data.images import PreparedImages, Reading, Reduction
    from chainrule.data.images.source import Pixels

LARGEST = 1 << 14  # pixels of a side


@dataclass(frozen=True)
class ImageFiles:
    """Which image files are read."""

    skip_bad: Switch = False
    """Leave out image files that cannot be read."""


@dataclass(frozen=True)
class ImageReading(SplitOptions):
    """How image files are read, and how many images are held out."""

    size: str = ""
    """Cut and scale image files to this size: 32, or HEIGHTxWIDTH."""
    colour: Literal["as-is", "grey", "rgb"] = "as-is"
    """Convert image files."""
    skip_bad: bool = False
    """Leave out image files that cannot be read."""

    @property
    def reading(self) -> "Reading":
        """How image files become pixels.

        Raises:
            ValueError: `size` is invalid.
        """
        from chainrule.data.images import Reading

        return Reading(parse_size(self.size), None if self.colour == "as-is" else self.colour)


@dataclass(frozen=True)
class ImageData(ImageReading):
    """How images are read and reduced, and which of them are held out."""

    bits: int | None = within(None, 1, 8)
    """Bits that are kept of each channel of a pixel; all that there are if not given."""
    binarise: Literal["no", "threshold", "fixed", "per-epoch"] = "no"
    """Make pixels black or white: at half of the brightest, or by a draw, once or in each epoch."""
    labels: bool | None = None
    """Condition the model on labels: sub-folders, an array, labels-idx1; if not given, where there are any."""


def parse_size(text: str) -> tuple[int, int] | None:
    """The height and width that a user named; `None` for nothing.

    >>> parse_size("32"), parse_size("20x30"), parse_size("")
    ((32, 32), (20, 30), None)

    Raises:
        ValueError: it is no size.
    """
    if not text:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side) <= LARGEST for side in sides):
        raise ValueError(
            f"--size: expected a number of pixels such as 32, or HEIGHTxWIDTH such as 24x32, got {text!r:.40}"
        )
    return int(sides[0]), int(sides[-1])


class ImageDataTask(Task[M]):
    """A run whose prepared data are `chainrule.data.images.PreparedImages`."""

    PREPARED = f"{DATA}/images.json"

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "validation", "shape", "images", "found_levels", "bits", "binarise", "classes"} <= set(facts):
            raise ValueError("facts: expected what preparing images leaves: source, shape, images, levels, classes")
        check_entries("facts", facts, "source", FINGERPRINT)
        shape, classes = facts["shape"], facts["classes"]
        if not isinstance(shape, list) or len(shape) != 3 or not all(type(side) is int for side in shape):
            raise ValueError(f"facts.shape: expected three whole numbers, got {shape!r:.80}")
        if shape[0] not in (1, 3) or not all(1 <= side <= LARGEST for side in shape):
            raise ValueError(f"facts.shape: expected 1 or 3 channels of at most {LARGEST} pixels a side, got {shape}")
        if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
            raise ValueError(f"facts.classes: expected names of labels or null, got {classes!r:.80}")
        if type(facts["found_levels"]) is not int or not 2 <= facts["found_levels"] <= 256:
            raise ValueError(
                f"facts.found_levels: expected a whole number from 2 to 256, got {facts['found_levels']!r:.80}"
            )

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(asked, given)
        _ = asked.data.reading  # an invalid size is rejected before anything is read

    def prepared(self, **options: Any) -> "PreparedImages":
        """Read and write the images; `options` are further ones of `prepare_images`."""
        from chainrule.data.images import prepare_images

        data, sources = self.data, self.config.sources
        assert sources["source"] is not None
        return prepare_images(
            sources["source"],
            self.path / DATA,
            reading=data.reading,
            skip_bad=data.skip_bad,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            seed=self.training.seed,
            **options,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.config.facts["shape"]
        return channels, height, width

    def read_pixels(self, path: Path) -> "Pixels":
        """The pixels of an image file, (C, H, W).

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no image, or of another size or kind than those trained on.
        """
        from chainrule.data.images import format_shape
        from chainrule.data.text import check_file

        pixels, _ = self.data.reading.image(check_file(path).read_bytes(), str(path))
        if pixels.shape != self.shape:
            channels, height, width = pixels.shape
            raise ValueError(
                f"{path}: expected an image of {format_shape(self.shape)}, as those trained on, got "
                f"{format_shape((channels, height, width))}: convert it"
            )
        return cast("Pixels", pixels)

    def images(self) -> "PreparedImages":
        """The prepared images."""
        from chainrule.data.images import open_images

        return open_images(self.path / DATA)

    @property
    def reduction(self) -> "Reduction":
        """From stored values to levels."""
        from chainrule.data.images import Reduction

        facts = self.config.facts
        return Reduction(facts["found_levels"], facts["bits"], facts["binarise"])

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels."""
        classes = self.config.facts["classes"]
        return None if classes is None else tuple(classes)

    def introduce(self) -> Iterator[str]:
        from chainrule.data.images import format_shape

        facts, labels = self.config.facts, describe_labels(self.classes)
        counts = facts["images"]
        yield f"{facts['name']}: images of {format_shape(self.shape)}; {self.reduction}; {labels}"
        held_out = facts["validation"]["name"] if facts["validation"] else f"drawn, seed {self.training.seed}"
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

    def describe(self, facts: dict[str, Any]) -> dict[str, str]:
        from chainrule.data.images import format_shape

        images, data = facts["facts"], facts["data"]
        held_out = images["validation"]["name"] if images["validation"] else f"{data['validation_fraction']:.0%}, drawn"
        counts = images["images"]
        return {
            "data": f"{images['name']} ({size_of(images['source']['bytes'])}), images of {format_shape(self.shape)}",
            "values": str(self.reduction),
            "labels": describe_labels(self.classes),
            "split": f"{counts['train']:,} images to train on, {counts['valid']:,} held out ({held_out})",
        }

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        from chainrule.data.images import source_fingerprint

        assert path is not None
        return source_fingerprint(path)


def describe_labels(classes: tuple[str, ...] | None) -> str:
    """
    >>> describe_labels(("cat", "dog")), describe_labels(None)
    ('2 labels: cat, dog', 'no labels')
    """
    if classes is None:
        return "no labels"
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{len(classes)} label{'s' * (len(classes) != 1)}: {shown}"
