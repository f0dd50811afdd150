"""The learning rate as a function of how much of the run is done."""

import math


def learning_rate(progress: float, peak: float, warmup: float, floor: float = 0.01) -> float:
    r"""Linear warm-up, then half a cosine down to a hundredth of the peak (Loshchilov and Hutter 2017, SGDR).

    .. math::
        \eta(p) = \eta_{max} \begin{cases} p / w & p < w \\
        f + (1 - f) \frac{1 + \cos(\pi (p - w)/(1 - w))}{2} & p \ge w \end{cases}

    Progress is a fraction, of steps or of seconds: nothing here knows how long a run lasts, so a run that is extended
    resumes at its place in the longer schedule.

    Args:
        progress: fraction of the run done at the end of the step, in [0, 1].
        peak: the highest learning rate.
        warmup: fraction of the run spent rising, in [0, 1).
        floor: last learning rate as a fraction of the peak: the last steps still learn.

    >>> [round(learning_rate(p, 1.0, 0.2), 3) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.505, 0.01]
    """
    if progress < warmup:
        return peak * progress / warmup
    fall = (min(progress, 1.0) - warmup) / (1 - warmup)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * fall)) / 2)
