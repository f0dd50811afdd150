"""Options of classifiers of images: training, and the verbs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.config import OptimisationOptions, within
from chainrule.tasks.display import Switch

if TYPE_CHECKING:
    from chainrule.data.images.augmentation import Augmentation


@dataclass(frozen=True)
class ImageClassifierTraining(OptimisationOptions):
    """How a classifier of images is trained."""

    batch_size: int = within(64, 1, 1 << 24)
    """Images of a batch."""
    learning_rate: float = within(2e-3, 0.0, 1e3)
    """Peak learning rate."""
    weight_decay: float = within(0.05, 0.0, 1e3)
    """Decoupled weight decay of matrices."""
    shift: float = within(2.0, 0.0, 1e4)
    """Move each image at random, by so many pixels at most."""
    rotate: float = within(0.0, 0.0, 180.0)
    """Turn each image at random, by so many degrees at most."""
    scale: float = within(0.0, 0.0, 9.0)
    """Scale each image at random: 0.1 is by 1 / 1.1 to 1.1."""
    flip: bool = False
    """Mirror half of the images, left for right: only where that keeps labels, as of a cat and not of a digit."""
    random_operations: int = within(0, 0, 16)
    """So many random operations on each image: shifts, turns, shears, brightness, contrast, cutout (RandAugment)."""
    magnitude: float = within(0.3, 0.0, 1.0)
    """Strength of random operations, as a share of the largest."""

    def augmentation(self, levels: int) -> "Augmentation":
        """How images of so many levels are changed in training."""
        from chainrule.data.images.augmentation import Augmentation

        return Augmentation(
            self.shift, self.rotate, self.scale, self.flip, self.random_operations, self.magnitude, levels
        )


@dataclass(frozen=True)
class ImageLabelling:
    """Label images: a line for each with its label, the probability of that, and its name, tabs between them.

    Args:
        file: An image file, a folder, a .zip or .tar file, an npz, npy or idx file.
        json: Print a JSON object for each image, with the probabilities of all labels.
    """

    top: Annotated[int, Parameter(name=["--top", "-n"])] = 1
    """The so many likeliest labels of each image."""
    skip_bad: Switch = False
    """Leave out image files that cannot be read."""


@dataclass(frozen=True)
class ImageLabelEvaluation:
    """Compare a classifier with images whose labels are known.

    Accuracy, F1 averaged over labels, nats per image, how far confidence is from accuracy, the table of confusions,
    and the mistakes made with most confidence.

    Args:
        data: Images and labels, as those of training.
    """

    errors: int = 5
    """So many mistakes."""


@dataclass(frozen=True)
class ImageClassifierInspection:
    """Look inside a trained classifier of images: where it looked, right and wrong, and how far attention reaches.

    Maps are by attention rollout for vit and cct, by Grad-CAM for cnn and swin. The distance of attention is that of
    the places that are read, in pixels, averaged by their weights. Writes a page (HTML, one file, needs no network).
    """

    rows: int = 1000
    """Held-out images that are labelled."""
    examples: int = 12
    """So many wrong answers on the page, and so many right ones."""


@dataclass(frozen=True)
class ImageClassifierEmbedding:
    """Embed images: for each its name, and the features that its label is predicted from.

    Args:
        data: An image file, a folder, an npz, npy or idx file.
    """

    skip_bad: Switch = False
    """Leave out image files that cannot be read."""
