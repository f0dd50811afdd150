"""Numbers in one line of text."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy.typing as npt

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """A bar for each value, low to high; what lies beyond is at the end.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 9.0], 0.0, 3.0)
    '▁▃▆██'
    """
    step = (high - low) / len(_BARS) or 1.0
    return "".join(_BARS[min(max(int((value - low) / step), 0), len(_BARS) - 1)] for value in values)


def loudness_line(amplitudes: "npt.ArrayLike", width: int = 60) -> str:
    """Loudness of a sound from its beginning to its end: a bar for the largest amplitude of each of `width` parts.

    Each step up is 6 decibels, twice the amplitude; the highest is 0.5 and more.

    >>> loudness_line([0.0, 0.01, 0.3, -0.9], width=4)
    '▁▂▇█'
    """
    import numpy as np

    parts = [np.abs(part) for part in np.array_split(np.asarray(amplitudes), width) if len(part)]
    return sparkline([math.log2(max(float(part.max()), 2.0**-10)) for part in parts], -len(_BARS), 0)
