"""How images are read, and a run on them, whatever is modelled."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.option_error import OptionError
from chainrule.ranges import Range
from chainrule_app.printing import counted
from chainrule_app.readers import images as image_reader
from chainrule_app.readers.origin import no_such_file, refuse_stdin
from chainrule_app.readers.sources import is_path
from chainrule_app.tasks.config import Facts, Fingerprint, Parts, RunConfig, Switch
from chainrule_app.tasks.options import SplitOptions
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.task import M, Task

if TYPE_CHECKING:
    from chainrule_app.readers.images.folder import Reading
    from chainrule_app.readers.images.prepare import PreparedImages
    from chainrule_app.readers.images.source import ImageSource, Pixels, Reduction

LARGEST = 1 << 14  # pixels of a side


@dataclass(frozen=True)
class ImageFiles:
    """Option for unreadable image files."""

    skip_bad: Switch = False
    """Skip image files that cannot be read."""


@dataclass(frozen=True)
class ImageReading(SplitOptions):
    """Options for reading image files and holding some out."""

    size: str = ""
    """Crop and scale image files to this size: 32, or HEIGHTxWIDTH."""
    colour: Literal["as-is", "grey", "rgb"] = "as-is"
    """Convert the colours of image files."""
    skip_bad: bool = False
    """Skip image files that cannot be read."""

    @property
    def reading(self) -> "Reading":
        return image_reader.Reading(parse_size(self.size), None if self.colour == "as-is" else self.colour)


@dataclass(frozen=True)
class ImageData(ImageReading):
    """Options for reading, reducing and holding out images."""

    bits: Annotated[int, Range(1, 8)] | None = None
    """Bits per channel of a pixel; all bits by default."""
    binarise: Literal["no", "threshold", "fixed", "per-epoch"] = "no"
    """Make pixels black or white: at half of the maximum brightness, or at random, once or in each epoch."""
    labels: bool | None = None
    """Condition the model on labels (sub-folders, an array, labels-idx1); by default if there are any."""


def parse_size(text: str) -> tuple[int, int] | None:
    """Parse a height and width; None for an empty text.

    >>> parse_size("32"), parse_size("20x30"), parse_size("")
    ((32, 32), (20, 30), None)
    """
    if not text:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side) <= LARGEST for side in sides):
        raise OptionError(
            "size", f"expected a number of pixels such as 32, or HEIGHTxWIDTH such as 24x32, got {text!r:.40}"
        )
    return int(sides[0]), int(sides[-1])


@dataclass(frozen=True)
class LeftOut:
    """Unreadable images: their number, and the first names."""

    count: int
    names: list[str]


@dataclass(frozen=True)
class ImageFacts(Facts):
    validation: Fingerprint | None
    name: str
    shape: tuple[int, int, int]  # channels, height, width
    images: Parts
    found_levels: int
    bits: int | None
    binarise: Literal["threshold", "fixed", "per-epoch"] | None
    classes: list[str] | None
    scaled_to_8_bits: int
    put_on_white: int
    left_out: LeftOut

    def __post_init__(self) -> None:
        channels, height, width = self.shape
        if channels not in (1, 3) or not 1 <= height <= LARGEST or not 1 <= width <= LARGEST:
            raise ValueError(f"shape: expected 1 or 3 channels of at most {LARGEST} pixels a side, got {self.shape}")
        if not 2 <= self.found_levels <= 256:
            raise ValueError(f"found_levels: expected a whole number from 2 to 256, got {self.found_levels}")


class ImageDataTask(Task[M]):
    """Run whose prepared data are `chainrule_app.readers.images.PreparedImages`."""

    PREPARED = f"{DATA}/images.json"
    Facts: ClassVar[type] = ImageFacts

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(request, given)
        _ = request.data.reading  # an invalid size is rejected before anything is read

    def prepared(self, old: "ImageDataTask[Any] | None", **options: Any) -> "PreparedImages":
        """Read and write the images, which must fit the images of an old run."""
        data, sources = self.data, self.config.sources
        images = image_reader.prepare_images(
            self.source,
            self.path / DATA,
            reading=data.reading,
            skip_bad=data.skip_bad,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            seed=self.training.seed,
            **options,
        )
        if old is not None:
            was = {"shape": list(old.shape), "found_levels": old.facts.found_levels, "classes": old.facts.classes}
            for name, value in was.items():
                if (now := images.manifest[name]) != value:
                    raise OptionError("init", f"{old.path} was trained on images with {name} {value}, these have {now}")
        return images

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.facts.shape
        return channels, height, width

    def source_of(self, data: Any, *, labelled: bool | None, skip_bad: bool) -> "ImageSource":
        """Open images like those that the run was trained on."""
        if is_path(data) and not Path(data).exists() and not image_reader.is_images(data):
            refuse_stdin(data)
            raise no_such_file(data, "file or folder: expected images")
        reading = self.data.reading if image_reader.is_collection(data) else None
        levels = self.facts.found_levels
        black_and_white = levels if self.facts.binarise is None else 2  # some are binary already
        source = image_reader.open_source(
            data, labelled=labelled, reading=reading, skip_bad=skip_bad, black_and_white=black_and_white
        )
        image_reader.check_alike(source, self.shape, levels)
        if source.skipped:
            print(f"{len(source.skipped)} image files cannot be read: {', '.join(source.skipped[:5])}", file=sys.stderr)
        return source

    def read_pixels(self, path: Any) -> "Pixels":
        """Read the pixels of an image, (C, H, W), spread over the levels of the training images."""
        pixels = image_reader.read_image(path, self.data.reading)
        if pixels.shape != self.shape:
            channels, height, width = pixels.shape
            raise ValueError(
                f"{path}: expected an image of {image_reader.format_shape(self.shape)}, as in training, got "
                f"{image_reader.format_shape((channels, height, width))}: convert it"
            )
        return image_reader.spread_over(pixels, self.facts.found_levels)

    def images(self) -> "PreparedImages":
        return image_reader.open_images(self.path / DATA)

    @property
    def reduction(self) -> "Reduction":
        facts = self.facts
        return image_reader.Reduction(facts.found_levels, facts.bits, facts.binarise)

    @property
    def classes(self) -> tuple[str, ...] | None:
        classes = self.facts.classes
        return None if classes is None else tuple(classes)

    def introduce(self) -> Iterator[str]:
        facts, labels = self.facts, describe_labels(self.classes)
        yield f"{facts.name}: images of {image_reader.format_shape(self.shape)}; {self.reduction}; {labels}"
        held_out = facts.validation.name if facts.validation else f"drawn, seed {self.training.seed}"
        yield f"{counted(facts.images.train, 'image')} to train on, {facts.images.valid:,} held out ({held_out})"
        for count, what in (
            (facts.scaled_to_8_bits, "of 16 bits, scaled to 8"),
            (facts.put_on_white, "transparent, put on a white background"),
        ):
            if count:
                yield f"{counted(count, 'image')} are {what}"
        left_out = facts.left_out
        if left_out.count:
            names = ", ".join(left_out.names[:5]) + (", ..." if left_out.count > 5 else "")
            yield f"skipped {left_out.count} unreadable image files: {names}"

    @classmethod
    def fingerprint(cls, path: Any) -> dict[str, Any]:
        return image_reader.source_fingerprint(path)


def describe_labels(classes: tuple[str, ...] | None) -> str:
    """Count the labels and name the first ones.

    >>> describe_labels(("cat", "dog")), describe_labels(None)
    ('2 labels: cat, dog', 'no labels')
    """
    if classes is None:
        return "no labels"
    first = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{counted(len(classes), 'label')}: {first}"
