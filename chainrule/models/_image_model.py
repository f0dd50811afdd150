"""Images as a network reads them, and the base of models of images: the layout of x, its values, and labels."""

from collections.abc import Mapping
from math import prod

from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule._ranges import check_shares, check_sizes
from chainrule.kernels._transforms import values_are_known
from chainrule.option_error import OptionError


class ImageInput:
    """Images (B, C, H, W) of integers in [0, V), checked, and brought to numbers from 0 to 1."""

    def __init__(self, image_shape: tuple[int, int, int], levels: int):
        if len(image_shape) != 3 or min(image_shape) < 1:
            raise ValueError(f"image_shape: expected (C, H, W), each at least 1, got {tuple(image_shape)}")
        if levels < 2:
            raise OptionError("levels", f"expected at least 2 values of a channel, got {levels}")
        channels, height, width = image_shape
        self.image_shape, self.levels = (channels, height, width), levels

    def checked(self, x: Tensor, name: str = "x") -> Tensor:
        """x itself; its values are looked at on a processor alone: a GPU would have to be waited for."""
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


class ImageModel(AutoregressiveModel):
    r"""An autoregressive model of images (C, H, W) of integers in [0, levels).

    The chain rule visits pixels in raster order (row by row, from the left) and inside a pixel its colour channels in
    their order, R before G before B. One element is one colour channel of one pixel, so that T = H·W·C:

    .. math:: p(x \mid c) = \prod_{i=1}^{H} \prod_{j=1}^{W} \prod_{k=1}^{C} p(x_{kij} \mid
        \text{rows above},\ \text{pixels to the left},\ x_{1ij}, \ldots, x_{k-1,ij},\ c)

    `forward`, `log_prob` and `sample` take images x (B, C, H, W); `step`, `unroll`, `stream` and `prefix` take elements
    in that order; `to_sequence` and `from_sequence` convert. The first rows of an image, which `sample` completes, are
    the prefix `to_sequence(x[:, :, :rows])`.

    Args:
        image_shape: (C, H, W).
        levels: values that a channel of a pixel may have: 2 for binary images, 256 for 8 bits.
        num_classes: number of labels on which an image can be conditioned, as context (B,) of integers in [0,
            num_classes); `None` for no labels.
    """

    sequence_length: int

    def __init__(self, image_shape: tuple[int, int, int], levels: int, num_classes: int | None):
        super().__init__()
        self.images = ImageInput(image_shape, levels)
        check_sizes(num_classes=num_classes)
        self.image_shape, self.levels, self.num_classes = self.images.image_shape, levels, num_classes
        self.sequence_length = prod(image_shape)

    def to_sequence(self, x: Tensor) -> Tensor:
        """Rows of images (B, C, rows, W) as elements in visiting order, (B, rows·W·C)."""
        channels, height, width = self.image_shape
        if x.dim() != 4 or x.shape[1] != channels or x.shape[2] > height or x.shape[3] != width:
            raise ValueError(
                f"x: expected images of shape (B, {channels}, {height}, {width}), or their first rows, "
                f"got {tuple(x.shape)}"
            )
        return x.permute(0, 2, 3, 1).flatten(1)

    def from_sequence(self, sequence: Tensor) -> Tensor:
        """Elements in visiting order (B, rows·W·C) as rows of images (B, C, rows, W)."""
        channels, _, width = self.image_shape
        rows, rest = divmod(sequence.shape[-1], width * channels)
        if sequence.dim() != 2 or rest:
            raise ValueError(
                f"sequence: expected (B, T) with T a multiple of {width * channels}, the elements of a row of pixels, "
                f"got {tuple(sequence.shape)}"
            )
        return sequence.view(len(sequence), rows, width, channels).permute(0, 3, 1, 2)

    def _checked_sizes(
        self, channels: int, layers: int, kernel_sizes: Mapping[str, int], dropout: float, *, halved: bool = False
    ) -> None:
        """Reject invalid sizes; of channels that a layer halves, an odd number."""
        if halved and channels % 2:
            raise OptionError(
                "channels", f"expected an even number, half of it for the inside of a layer, got {channels}"
            )
        check_sizes(layers=layers)
        if channels < 2 * self.image_shape[0]:
            raise OptionError(
                "channels", f"expected at least {2 * self.image_shape[0]}, 2 for a colour, got {channels}"
            )
        for name, size in kernel_sizes.items():
            if size < 3 or size % 2 == 0:
                raise OptionError(name, f"expected an odd number of pixels, at least 3, got {size}")
        check_shares(dropout=dropout)

    def _scaled(self, x: Tensor, like: Tensor) -> Tensor:
        """Integers in [0, levels) as numbers from -1 to 1, in the type of `like`."""
        return x.to(like.dtype) * (2 / (self.levels - 1)) - 1
