"""A sound in one line of text."""

import numpy as np
import numpy.typing as npt

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(amplitudes: npt.ArrayLike, width: int = 60) -> str:
    """How loud a sound is from its beginning to its end: the largest amplitude of each of `width` parts.

    Each step up is 6 decibels, twice the amplitude; the highest stands for 0.5 and more.

    >>> sparkline([0.0, 0.01, 0.3, -0.9], width=4)
    '▁▂▇█'
    """
    heights = [float(np.abs(part).max()) for part in np.array_split(np.asarray(amplitudes), width) if len(part)]
    steps = np.floor(np.log2(np.maximum(heights, 2.0**-10))) + len(_BARS)
    return "".join(_BARS[int(step)] for step in steps.clip(0, len(_BARS) - 1))
