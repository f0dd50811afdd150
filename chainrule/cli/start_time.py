"""When the command was given: a budget counts from there."""

from time import monotonic

_given: list[float] = []


def note_start() -> None:
    """Remember that a command begins now."""
    _given[:] = [monotonic()]


def take_start() -> float:
    """When the present command began, once; now, where none was noted."""
    return _given.pop() if _given else monotonic()
