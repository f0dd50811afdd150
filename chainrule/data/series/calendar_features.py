"""What a date tells: known in advance, for any future."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from chainrule.data.series.frequency import DAY, Frequency

Floats = npt.NDArray[np.float64]
CYCLES: dict[str, Callable[[datetime], float]] = {
    "time of day": lambda date: (date.hour * 3600 + date.minute * 60 + date.second) / DAY,
    "day of week": lambda date: date.weekday() / 7,
    "day of year": lambda date: (date.timetuple().tm_yday - 1) / 366,
}


def calendar_names(frequency: Frequency, dates: Sequence[datetime]) -> list[str]:
    """The cycles that dates go through at least twice, those shorter than a step left out.

    What stood once at each place of a cycle tells nothing of the cycle: a model would learn its dates by heart.

    >>> hours = Frequency("seconds", 3600)
    >>> calendar_names(hours, [datetime(2024, 1, 1), datetime(2024, 3, 1)])
    ['time of day', 'day of week']
    """
    cycles = {"time of day": DAY, "day of week": 7 * DAY, "day of year": 366 * DAY}
    days = {"business days": DAY, "months": 30 * DAY, "month ends": 30 * DAY}
    step = days.get(frequency.unit, frequency.count)
    span = (dates[-1] - dates[0]).total_seconds()
    return [name for name, cycle in cycles.items() if step < cycle and 2 * cycle <= span + step]


def calendar_features(dates: Sequence[datetime], names: Sequence[str]) -> Floats:
    """Sine and cosine of the place in each cycle, (T, 2·cycles): Monday is as near to Sunday as to Tuesday.

    >>> calendar_features([datetime(2024, 1, 1, 6)], ["time of day"]).round(3)
    array([[1., 0.]])
    """
    columns = []
    for name in names:
        angles = np.array([math.tau * CYCLES[name](date) for date in dates])
        columns += [np.sin(angles), np.cos(angles)]
    return np.stack(columns, 1) if columns else np.zeros((len(dates), 0))
