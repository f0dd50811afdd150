"""Options of the verbs of images that need a code."""

from dataclasses import dataclass

from chainrule.tasks.display import Switch

CODE_TRAINING = {"batch_size": 128, "learning_rate": 1e-3}  # where the user says nothing


@dataclass(frozen=True)
class ImageEmbedding:
    """Embed images: the mean of the code of each, or the code itself of an autoencoder.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
    """

    skip_bad: Switch = False
    """Leave out image files that cannot be read."""


@dataclass(frozen=True)
class ImageReconstruction:
    """Draw images next to their reconstructions, in a grid in a PNG file: each image, and to its right what the
    decoder makes of its code.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
        out: The PNG file; RUN-pairs.png here if not given.
    """

    count: int = 32
    """Images, the first ones of DATA."""
    skip_bad: Switch = False
    """Leave out image files that cannot be read."""


@dataclass(frozen=True)
class ImageInterpolation:
    """Draw the images between two, in a row in a PNG file: the codes lie on a straight line.

    The row begins and ends with the two images themselves, as the model knows them.

    Args:
        first: An image file.
        last: Another one.
        out: The PNG file; RUN-row.png here if not given.
    """

    count: int = 9
    """Images drawn, those of the two codes included."""
