"""Integer levels of amplitudes: uniform, and finer for quiet sounds."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from chainrule.option_error import OptionError

Amplitudes = npt.NDArray[np.float32]


class SoundLevels(ABC):
    """V integer levels of an amplitude."""

    law: str

    def __init__(self, levels: int):
        self.levels = levels

    @abstractmethod
    def encode(self, amplitudes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the level of each amplitude; amplitudes beyond [−1, 1] are clipped."""

    @abstractmethod
    def decode(self, levels: npt.ArrayLike) -> Amplitudes:
        """Return the amplitude of each level, float32: `encode(decode(v)) == v`."""

    @property
    def silence(self) -> int:
        """The level of the amplitude 0."""
        return int(self.encode(0.0))


class MuLawLevels(SoundLevels):
    r"""Levels that are as fine as the ear: dense for quiet sounds (μ-law, ITU-T G.711 in its continuous form).

    .. math:: y = \operatorname{sign}(x) \frac{\ln(1 + \mu |x|)}{\ln(1 + \mu)}, \quad \mu = V - 1, \qquad
        v = \left\lfloor \frac{y + 1}{2} \mu + \frac{1}{2} \right\rfloor

    and back :math:`y = 2v/\mu - 1, \; x = \operatorname{sign}(y) ((1 + \mu)^{|y|} - 1)/\mu`. The numbers equal
    torchaudio's `mu_law_encoding`. An even V has no level at amplitude 0: with 256 levels, silence
    comes back as 1/11,600 of the full amplitude.

    Args:
        levels: V, 256 for the 8 bits of the telephone.

    Raises:
        ValueError: fewer than 2 levels.

    >>> mu = MuLawLevels(256)
    >>> mu.encode([-1.0, -0.01, 0.0, 0.01, 1.0]).tolist()
    [0, 98, 128, 157, 255]
    >>> f"1/{1 / mu.decode(mu.silence):,.0f}"
    '1/11,599'
    """

    law = "mu"

    def __init__(self, levels: int = 256):
        if levels < 2:
            raise OptionError("levels", f"expected at least 2, got {levels}")
        super().__init__(levels)

    def encode(self, amplitudes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        x, mu = np.clip(np.asarray(amplitudes, dtype=np.float64), -1, 1), self.levels - 1
        y = np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu)
        return np.floor((y + 1) / 2 * mu + 0.5).astype(np.int64)

    def decode(self, levels: npt.ArrayLike) -> Amplitudes:
        mu = self.levels - 1
        y = 2 * np.asarray(levels, dtype=np.float64) / mu - 1
        return (np.sign(y) * np.expm1(np.abs(y) * np.log1p(mu)) / mu).astype(np.float32)


class LinearLevels(SoundLevels):
    r"""Levels at even distances, as a sound file of so many bits has them.

    .. math:: v = \left\lfloor (x + 1)\, 2^{b-1} + \tfrac{1}{2} \right\rfloor, \qquad x = v / 2^{b-1} - 1

    for b bits, V = 2^b. The samples of a 16-bit file are kept exactly by 16 bits.

    Args:
        levels: V, a power of two up to 65,536.

    Raises:
        ValueError: another number.

    >>> LinearLevels(65536).encode([-1.0, 0.0, 1 / 32768]).tolist()
    [0, 32768, 32769]
    """

    law = "linear"

    def __init__(self, levels: int = 65536):
        if not 2 <= levels <= 65536 or levels & (levels - 1):
            raise OptionError("levels", f"expected a power of two from 2 to 65536, got {levels}")
        super().__init__(levels)

    def encode(self, amplitudes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        v = np.floor((np.asarray(amplitudes, dtype=np.float64) + 1) * (self.levels / 2) + 0.5)
        return np.clip(v, 0, self.levels - 1).astype(np.int64)

    def decode(self, levels: npt.ArrayLike) -> Amplitudes:
        return (np.asarray(levels, dtype=np.float64) / (self.levels / 2) - 1).astype(np.float32)
