"""The directory of a run on pictures, which are kept in `data/`.

data/train.npy, valid.npy                  the pictures, (N, C, H, W) bytes
data/train_labels.npy, valid_labels.npy    their labels, where there are any
data/images.json                           counts, levels, names of labels, fingerprints
samples.png                                what the model drew at the last validation
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import (
    FINGERPRINT,
    CheckedOptions,
    OptimisationOptions,
    RunConfig,
    check_entries,
    within,
)
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from chainrule.data.images import PreparedImages, Reading, Reduction
    from chainrule.models import ImageModel

SAMPLES = "samples.png"
_LARGEST = 1 << 14  # pixels of a side
# The options that each model has, with what they are where nothing is said.
USUAL: dict[str, dict[str, Any]] = {
    "gated-pixelcnn": {"channels": 24, "layers": 5, "kernel_size": 5, "first_kernel_size": 7, "dropout": 0.0},
    "pixelcnn": {"channels": 64, "layers": 5, "kernel_size": 7, "first_kernel_size": 7, "dropout": 0.0},
    "pixelcnn++": {"channels": 32, "layers": 2, "resolutions": 3, "components": 5, "dropout": 0.0},
    "row-lstm": {"channels": 32, "layers": 3, "first_kernel_size": 7, "dropout": 0.0},
    "diagonal-bilstm": {"channels": 32, "layers": 3, "first_kernel_size": 7, "dropout": 0.0},
}


@dataclass(frozen=True)
class ImageOptions(CheckedOptions):
    """The options of a model of pictures; one that its model does not have is `None`."""

    channels: int | None = within(None, 2, 1 << 12)
    """Features of a pixel in each layer; as many as suit the model and a small picture if not given."""
    layers: int | None = within(None, 1, 256)
    """Layers after the first; of pixelcnn++, blocks at each resolution."""
    kernel_size: int | None = within(None, 3, 63)
    """Pixels to a side that a layer's convolution spans (pixelcnn, gated-pixelcnn)."""
    first_kernel_size: int | None = within(None, 3, 63)
    """The same of the layer that reads the picture."""
    resolutions: int | None = within(None, 1, 8)
    """Resolutions, each half of the one before (pixelcnn++)."""
    components: int | None = within(None, 1, 1 << 10)
    """Logistics in the mixture of a pixel (pixelcnn++)."""
    dropout: float | None = within(None, 0.0, 0.99)
    """Share of units dropped in training."""


@dataclass(frozen=True)
class ImageData(CheckedOptions):
    """How pictures are read, and which of them are held out."""

    bits: int | None = within(None, 1, 8)
    """Bits that are kept of each channel of a pixel; all that there are if not given."""
    binarise: Literal["no", "threshold", "fixed", "per-epoch"] = "no"
    """Make pixels black or white: at half of the brightest, or by a draw, once or anew in each epoch."""
    labels: bool | None = None
    """Condition the model on labels: sub-folders, an array, labels-idx1; if not given, where there are any."""
    size: str = ""
    """Cut and scale picture files to this size: 32, or HEIGHTxWIDTH."""
    colour: Literal["as-is", "grey", "rgb"] = "as-is"
    """Convert picture files."""
    skip_bad: bool = False
    """Leave out picture files that cannot be read."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the pictures that is held out."""

    @property
    def reading(self) -> "Reading":
        """How picture files become pixels.

        Raises:
            ValueError: `size` is none.
        """
        from chainrule.data.images import Reading

        return Reading(parse_size(self.size), None if self.colour == "as-is" else self.colour)


@dataclass(frozen=True)
class ImageTraining(OptimisationOptions):
    """How a model of pictures is trained: each of them is hundreds of elements."""

    batch_size: int = within(16, 1, 1 << 24)
    """Pictures of a batch."""
    learning_rate: float = within(4e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""


class ImageRun(Run["ImageModel"]):
    """A run on pictures."""

    KIND = "image"
    DATA = ImageData
    MODELS: ClassVar[dict[str, type]] = dict.fromkeys(USUAL, ImageOptions)
    TRAINING = ImageTraining

    @property
    def data(self) -> ImageData:
        """How the pictures are read."""
        return cast(ImageData, self.config.data)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "validation", "shape", "pictures", "found_levels", "bits", "binarise", "classes"} <= set(
            facts
        ):
            raise ValueError("facts: expected what preparing pictures leaves: source, shape, pictures, levels, classes")
        check_entries("facts", facts, "source", FINGERPRINT)
        shape, classes = facts["shape"], facts["classes"]
        if not isinstance(shape, list) or len(shape) != 3 or not all(type(side) is int for side in shape):
            raise ValueError(f"facts.shape: expected three whole numbers, got {shape!r:.80}")
        if shape[0] not in (1, 3) or not all(1 <= side <= _LARGEST for side in shape):
            raise ValueError(f"facts.shape: expected 1 or 3 channels of at most {_LARGEST} pixels a side, got {shape}")
        if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
            raise ValueError(f"facts.classes: expected names of labels or null, got {classes!r:.80}")
        if type(facts["found_levels"]) is not int or not 2 <= facts["found_levels"] <= 256:
            raise ValueError(
                f"facts.found_levels: expected a whole number from 2 to 256, got {facts['found_levels']!r:.80}"
            )

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        for name, value in asdict(config.options).items():
            if value is not None and name not in USUAL[config.model]:
                having = ", ".join(model for model, usual in USUAL.items() if name in usual)
                raise ValueError(f"{name}: an option of {having}, but the model is {config.model}: leave it out")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.config.facts["shape"]
        return channels, height, width

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

    def images(self) -> "PreparedImages":
        """The prepared pictures."""
        from chainrule.data.images import open_images

        return open_images(self.path / DATA)

    def build(self) -> "ImageModel":
        return self.model_of(self.shape)

    def model_of(self, shape: tuple[int, int, int]) -> "ImageModel":
        """The run's model for pictures of another size; weights are the same, as they are shared by all pixels."""
        options = asdict(self.config.options)
        chosen = {
            name: usual if options[name] is None else options[name] for name, usual in USUAL[self.config.model].items()
        }
        classes = None if self.classes is None else len(self.classes)
        return _build(self.config.model, shape, self.reduction.levels, classes, chosen)

    def fewest_weights(self) -> int:
        channels = self.config.options.channels or 2
        return int(channels) ** 2 // 4


def settled(model: str, options: ImageOptions) -> ImageOptions:
    """The options with the model's own where nothing was said."""
    chosen = asdict(options)
    usual: Mapping[str, Any] = USUAL[model]
    return ImageOptions(
        **{
            item.name: usual.get(item.name) if chosen[item.name] is None else chosen[item.name]
            for item in fields(ImageOptions)
        }
    )


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
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side) <= _LARGEST for side in sides):
        raise ValueError(
            f"--size: expected a number of pixels such as 32, or HEIGHTxWIDTH such as 24x32, got {text!r:.40}"
        )
    return int(sides[0]), int(sides[-1])


def _build(
    model: str, shape: tuple[int, int, int], levels: int, classes: int | None, options: dict[str, Any]
) -> "ImageModel":
    match model:
        case "pixelcnn":
            from chainrule.models.pixel_cnn import PixelCNN

            return PixelCNN(shape, levels, num_classes=classes, **options)
        case "gated-pixelcnn":
            from chainrule.models.gated_pixel_cnn import GatedPixelCNN

            return GatedPixelCNN(shape, levels, num_classes=classes, **options)
        case "pixelcnn++":
            from chainrule.models.pixel_cnn_pp import PixelCNNPP

            return PixelCNNPP(shape, levels, num_classes=classes, **options)
        case "row-lstm" | "diagonal-bilstm":
            from chainrule.models.pixel_rnn import PixelRNN

            kind: Literal["row", "diagonal"] = "row" if model == "row-lstm" else "diagonal"
            return PixelRNN(shape, levels, kind=kind, num_classes=classes, **options)
    raise AssertionError(model)
