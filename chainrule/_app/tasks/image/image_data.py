"""How images are read, and a run on them, whatever is modelled."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule._app.tasks.config import Facts, Fingerprint, Parts, RunConfig, SplitOptions, within
from chainrule._app.tasks.display import Switch, counted, size_of
from chainrule._app.tasks.run_directory import DATA
from chainrule._app.tasks.task import M, Task

if TYPE_CHECKING:
    from chainrule.data._images import PreparedImages, Reading, Reduction
    from chainrule.data._images.source import Pixels

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
        """How image files become pixels."""
        from chainrule.data._images import Reading

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
    """
    if not text:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side) <= LARGEST for side in sides):
        raise ValueError(
            f"--size: expected a number of pixels such as 32, or HEIGHTxWIDTH such as 24x32, got {text!r:.40}"
        )
    return int(sides[0]), int(sides[-1])


@dataclass(frozen=True)
class LeftOut:
    """Images that cannot be read: how many, and the names of the first."""

    count: int
    names: list[str]


@dataclass(frozen=True)
class ImageFacts(Facts):
    """Results of preparing images."""

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
    """A run whose prepared data are `chainrule.data._images.PreparedImages`."""

    PREPARED = f"{DATA}/images.json"
    Facts: ClassVar[type] = ImageFacts

    @property
    def facts(self) -> ImageFacts:
        return cast(ImageFacts, self.config.facts)

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(asked, given)
        _ = asked.data.reading  # an invalid size is rejected before anything is read

    def prepared(self, old: "ImageDataTask[Any] | None", **options: Any) -> "PreparedImages":
        """Read and write the images; `options` are further ones of `prepare_images`.

        Raises:
            ValueError: they are of another shape than those of the old run, or have other levels or labels.
        """
        from chainrule.data._images import prepare_images

        data, sources = self.data, self.config.sources
        assert sources["source"] is not None
        images = prepare_images(
            sources["source"],
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
                    raise ValueError(f"--from: {old.path} was trained on images with {name} {value}, these have {now}")
        return images

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.facts.shape
        return channels, height, width

    def read_pixels(self, path: Path) -> "Pixels":
        """The pixels of an image file, (C, H, W), with the levels of the images trained on.

        Where these had fewer than 256, brightness from black to white is spread over them.
        """
        from chainrule.data._images import format_shape, spread_over
        from chainrule.data._text import check_file

        with check_file(path).open("rb") as file:
            pixels, _ = self.data.reading.image(file, str(path))
        if pixels.shape != self.shape:
            channels, height, width = pixels.shape
            raise ValueError(
                f"{path}: expected an image of {format_shape(self.shape)}, as those trained on, got "
                f"{format_shape((channels, height, width))}: convert it"
            )
        return spread_over(pixels, self.facts.found_levels)

    def images(self) -> "PreparedImages":
        """The prepared images."""
        from chainrule.data._images import open_images

        return open_images(self.path / DATA)

    @property
    def reduction(self) -> "Reduction":
        """From stored values to levels."""
        from chainrule.data._images import Reduction

        facts = self.facts
        return Reduction(facts.found_levels, facts.bits, facts.binarise)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels."""
        classes = self.facts.classes
        return None if classes is None else tuple(classes)

    def introduce(self) -> Iterator[str]:
        from chainrule.data._images import format_shape

        facts, labels = self.facts, describe_labels(self.classes)
        yield f"{facts.name}: images of {format_shape(self.shape)}; {self.reduction}; {labels}"
        held_out = facts.validation.name if facts.validation else f"drawn, seed {self.training.seed}"
        yield f"{counted(facts.images.train, 'image')} to train on, {facts.images.valid:,} held out ({held_out})"
        for count, what in (
            (facts.scaled_to_8_bits, "of 16 bits, scaled to 8"),
            (facts.put_on_white, "transparent, put on white"),
        ):
            if count:
                yield f"{counted(count, 'image')} are {what}"
        left_out = facts.left_out
        if left_out.count:
            names = ", ".join(left_out.names[:5]) + (", ..." if left_out.count > 5 else "")
            yield f"{left_out.count} image files cannot be read and are left out: {names}"

    def describe(self, about: dict[str, Any]) -> dict[str, str]:
        from chainrule.data._images import format_shape

        facts = self.facts
        held_out = facts.validation.name if facts.validation else f"{self.data.validation_fraction:.0%}, drawn"
        return {
            "data": f"{facts.name} ({size_of(facts.source.bytes)}), images of {format_shape(self.shape)}",
            "values": str(self.reduction),
            "labels": describe_labels(self.classes),
            "split": f"{counted(facts.images.train, 'image')} to train on, "
            f"{facts.images.valid:,} held out ({held_out})",
        }

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        from chainrule.data._images import source_fingerprint

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
