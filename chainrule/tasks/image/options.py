"""How images are read, and how a model of them is trained."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chainrule.tasks.config import CheckedOptions, OptimisationOptions, within

if TYPE_CHECKING:
    from chainrule.data.images import Reading

LARGEST = 1 << 14  # pixels of a side


@dataclass(frozen=True)
class ImageReading(CheckedOptions):
    """How image files are read, and how many images are held out."""

    size: str = ""
    """Cut and scale image files to this size: 32, or HEIGHTxWIDTH."""
    colour: Literal["as-is", "grey", "rgb"] = "as-is"
    """Convert image files."""
    skip_bad: bool = False
    """Leave out image files that cannot be read."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the images that is held out."""

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


@dataclass(frozen=True)
class ImageTraining(OptimisationOptions):
    """How a model of images is trained: each of them is hundreds of elements."""

    batch_size: int = within(16, 1, 1 << 24)
    """Images of a batch; 128 of a model with a code, where not given."""
    learning_rate: float = within(4e-3, 0.0, 1e3)
    """Peak learning rate; 0.001 of a model with a code, where not given."""


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
