"""The process of a command: when it began, and how its threads wait."""

from collections.abc import MutableMapping
from time import monotonic

_given: list[float] = []


def note_start() -> None:
    """Remember that a command begins now."""
    _given[:] = [monotonic()]


def take_start() -> float:
    """When the present command began, once; now, where none was noted."""
    return _given.pop() if _given else monotonic()


BOUNDED = {
    "GOMP_SPINCOUNT": "3000",  # GNU, in torch's wheels for Linux: rounds of waiting, 300,000 if not set
    "KMP_BLOCKTIME": "1",  # Intel and LLVM, in other builds of torch: milliseconds, 200 if not set
}
ASKED = ("OMP_WAIT_POLICY", *BOUNDED)


def bound_spinning(environment: MutableMapping[str, str]) -> None:
    """Let a waiting thread sleep soon, unless the user has said how it waits.

    A training step makes its threads wait for one another some thousand times. By default each waits for milliseconds
    in a loop, as long as the scheduler lets it. With another process on the machine, two threads may have to share a
    core, and each wait then lasts until the waiting one is interrupted: a step takes seconds. A short loop keeps the
    speed of an idle machine, where the others arrive within microseconds, and leaves the core to them on a busy one.

    Args:
        environment: the variables of this process, changed in place.
    """
    if not any(name in environment for name in ASKED):
        environment.update(BOUNDED)
