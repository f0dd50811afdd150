"""Images as a network reads them."""

from torch import Tensor


class ImageInput:
    """Images (B, C, H, W) of integers in [0, V), checked, and brought to numbers from 0 to 1.

    Args:
        image_shape: (C, H, W).
        levels: V.

    Raises:
        ValueError: a size is not positive, or there are fewer than 2 levels.
    """

    def __init__(self, image_shape: tuple[int, int, int], levels: int):
        if len(image_shape) != 3 or min(image_shape) < 1:
            raise ValueError(f"image_shape: expected (C, H, W), each at least 1, got {tuple(image_shape)}")
        if levels < 2:
            raise ValueError(f"levels: expected at least 2 values of a channel, got {levels}")
        channels, height, width = image_shape
        self.image_shape, self.levels = (channels, height, width), levels

    def checked(self, x: Tensor) -> Tensor:
        """x itself.

        Raises:
            ValueError: it is no batch of such images.
        """
        if x.dim() != 4 or x.shape[1:] != self.image_shape:
            expected = ", ".join(str(size) for size in self.image_shape)
            raise ValueError(f"x: expected images of shape (B, {expected}), got {tuple(x.shape)}")
        if x.is_floating_point():
            raise ValueError(f"x: expected integers in [0, {self.levels}), got {x.dtype}: quantise the images first")
        return x

    def scaled(self, x: Tensor, like: Tensor) -> Tensor:
        """x / (V − 1), in the type of `like`."""
        return self.checked(x).to(like.dtype) / (self.levels - 1)
