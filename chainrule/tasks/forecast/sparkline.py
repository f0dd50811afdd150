"""A series in one line of text."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """A bar for each value, low to high; what lies beyond is at the end.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 9.0], 0.0, 3.0)
    '▁▃▆██'
    """
    step = (high - low) / len(_BARS) or 1.0
    return "".join(_BARS[min(max(int((value - low) / step), 0), len(_BARS) - 1)] for value in values)
