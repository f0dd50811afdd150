"""Wall-clock times as people write them: 90s, 3m, 1h30m."""

import re

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _UNITS))


def parse_duration(text: str) -> float:
    """Seconds of a duration; a bare number is seconds.

    >>> parse_duration("1h30m"), parse_duration("90s"), parse_duration("45")
    (5400.0, 90.0, 45.0)

    Raises:
        ValueError: it is no duration, or not a positive one.
    """
    compact = text.strip().lower()
    compact = f"{compact}s" if re.fullmatch(r"\d+(\.\d+)?", compact) else compact
    match = _DURATION.fullmatch(compact)
    seconds = sum(float(value) * _UNITS[unit] for unit, value in match.groupdict().items() if value) if match else 0.0
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"--budget: expected a time such as 90s, 3m or 1h30m, got {text!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """Seconds as a short text.

    >>> format_duration(5400), format_duration(200.4), format_duration(2.34)
    ('1h30m', '3m20s', '2.3s')
    """
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    parts = {"d": whole // 86400, "h": whole // 3600 % 24, "m": whole // 60 % 60, "s": whole % 60}
    return "".join(f"{value}{unit}" for unit, value in parts.items() if value)
