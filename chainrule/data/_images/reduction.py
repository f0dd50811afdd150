"""From the values that images are stored with to the levels that a model knows: fewer bits, or two levels."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from chainrule.data._images.source import Pixels

Binarise = Literal["threshold", "fixed", "per-epoch"]


@dataclass(frozen=True)
class Reduction:
    r"""Reduction of values v in [0, L) to levels.

    .. math:: x = \lfloor v\, 2^b / L \rfloor \text{ (b bits)}, \qquad
        x \sim \mathrm{Bernoulli}(v / (L - 1)) \text{ (binarised by a draw)}

    Args:
        found: L, the levels of the images as they are stored.
        bits: b; `None` keeps all levels.
        binarise: two levels: "threshold" is one bit, cut at the middle; "fixed" draws each pixel once; "per-epoch"
            draws training images again in every epoch (Salakhutdinov and Murray 2008), held-out ones once.

    >>> Reduction(256, bits=5).levels, str(Reduction(256, bits=5)), str(Reduction(17))
    (32, '5 of 8 bits (32 levels)', '17 levels')
    """

    found: int
    bits: int | None = None
    binarise: Binarise | None = None

    def __post_init__(self) -> None:
        if self.bits is not None and not 1 <= self.bits <= 8:
            raise ValueError(f"bits: expected a whole number from 1 to 8, got {self.bits}")
        if self.binarise is not None and self.binarise not in get_args(Binarise):
            raise ValueError(f"binarise: expected one of {', '.join(get_args(Binarise))}, got {self.binarise!r}")
        if self.binarise is not None and self.bits not in (None, 1):
            raise ValueError(f"binarise: makes 1 bit of each pixel, but bits is {self.bits}: leave one of them out")
        if self.bits is not None and 2**self.bits > self.found:
            raise ValueError(f"bits: expected at most the {self.found} levels that the images have, got {self.bits}")
        if self.binarise is not None and self.found == 2:
            raise ValueError("binarise: the images have 2 levels already: leave it out")

    @property
    def levels(self) -> int:
        """The levels of x."""
        if self.binarise is not None:
            return 2
        return self.found if self.bits is None else 2**self.bits

    @property
    def draws(self) -> bool:
        """True if an image is not fixed by its values."""
        return self.binarise in ("fixed", "per-epoch")

    def apply(self, values: Pixels, random: np.random.Generator) -> Pixels:
        """Levels of stored values, any shape; `random` is read where pixels are drawn, in their order."""
        if self.draws:
            return (random.random(values.shape) * (self.found - 1) < values).astype(np.uint8)
        if self.levels == self.found:
            return values
        return (values.astype(np.uint32) * self.levels // self.found).astype(np.uint8)

    def __str__(self) -> str:
        if self.binarise == "fixed":
            return "binarised by one fixed draw"
        if self.binarise == "per-epoch":
            return "binarised by a new draw in each epoch, held-out images by one fixed draw"
        if self.binarise == "threshold" or (self.levels == 2 and self.found > 2):
            return "binarised at half of the brightest (threshold)"
        if self.levels == self.found:
            return "8 bits (256 levels)" if self.found == 256 else f"{self.found} levels"
        whole = f"{self.found.bit_length() - 1} bits" if self.found & (self.found - 1) == 0 else f"{self.found} levels"
        return f"{self.bits} of {whole} ({self.levels} levels)"
