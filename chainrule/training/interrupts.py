"""Ctrl-C and SIGTERM, put off to a moment at which a run can be saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether someone asked the run to end."""

    def __init__(self, *, patient: bool):
        self.requested = False
        self._patient = patient

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler: the first signal is a request, a second one breaks off whatever is going on."""
        if self.requested and not self._patient:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def deferred_interrupts(*, patient: bool = False) -> Iterator[Interrupts]:
    """Take SIGINT and SIGTERM as requests while the block runs.

    Outside the main thread, where Python allows no handlers, nothing is changed.

    Args:
        patient: never break off. Under torchrun, Ctrl-C reaches a process twice: from the terminal and from torchrun.
    """
    interrupts = Interrupts(patient=patient)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = {number: signal.signal(number, interrupts) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
