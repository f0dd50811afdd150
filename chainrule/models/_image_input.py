"""Images as a network reads them."""

from torch import Tensor

from chainrule._modes import values_are_known


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

    def checked(self, x: Tensor, name: str = "x") -> Tensor:
        """x itself; its values are looked at on a processor alone: a GPU would have to be waited for.

        Raises:
            ValueError: it is no batch of such images.
        """
        if x.dim() != 4 or x.shape[1:] != self.image_shape:
            expected = ", ".join(str(size) for size in self.image_shape)
            raise ValueError(f"{name}: expected images of shape (B, {expected}), got {tuple(x.shape)}")
        expected = f"{name}: expected integers in [0, {self.levels})"
        if x.is_floating_point():
            raise ValueError(
                f"{expected}, got {x.dtype}: quantise the images first, those in [0, 1] by "
                f"(images * {self.levels - 1}).round().long()"
            )
        if x.numel() and x.device.type == "cpu" and values_are_known(x):
            least, greatest = map(int, x.aminmax())
            if least < 0 or greatest >= self.levels:
                got = least if least < 0 else greatest
                raise ValueError(f"{expected}, got {got}: quantise the images, or give the model more levels")
        return x

    def scaled(self, x: Tensor, like: Tensor) -> Tensor:
        """x / (V − 1), in the type of `like`."""
        return self.checked(x).to(like.dtype) / (self.levels - 1)
