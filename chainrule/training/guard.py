"""Ends of a run before its time: signals, put off until it can be saved, and numbers that are not finite."""

import math
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
from torch import nn


class NonFiniteLossError(ValueError):
    """The loss, the gradient or the weights stopped being finite numbers.

    Attributes:
        step: the step at which it was seen, counted from 1.
        norms: gradient norms (before clipping) of the last steps, oldest first.
        saved_step: the step of the last good checkpoint, 0 where none was written.
    """

    def __init__(self, what: str, step: int, norms: list[float], saved_step: int, learning_rate: float):
        self.step = step
        self.norms = norms
        self.saved_step = saved_step
        history = ", ".join(f"{norm:.3g}" for norm in norms) or "none yet"
        kept = f"the checkpoint of step {saved_step} is kept" if saved_step else "no checkpoint had been written yet"
        super().__init__(
            f"{what} at step {step} (gradient norms up to it: {history}; learning rate {learning_rate:.3g}); "
            f"{kept}: start again with a lower learning_rate, a longer warmup or a smaller clip_norm, "
            "and if the precision was bfloat16 try float32"
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run; `train(..., resume=True)` on the same directory continues it.

    Attributes:
        directory: the run directory.
        step: the step that a resumed run continues from; 0 where it begins again.
    """

    def __init__(self, directory: Path, step: int):
        self.directory = directory
        self.step = step
        super().__init__(f"interrupted; step {step} is saved in {directory}: resume=True (--resume) continues from it")


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


class Guard:
    """Remembers the last gradient norms and refuses to go on without finite figures.

    Args:
        saved_step: step of the last good checkpoint; to be kept up to date by who saves.
    """

    def __init__(self, saved_step: int):
        self.saved_step = saved_step
        self._norms: deque[float] = deque(maxlen=12)

    def step(self, step: int, nats: float, norm: float, learning_rate: float) -> None:
        """Check a step's loss and gradient norm.

        Raises:
            NonFiniteLossError: one of them is infinite or no number.
        """
        self._norms.append(norm)
        if not math.isfinite(nats):
            raise self._error("the loss is not finite", step, learning_rate)
        if not math.isfinite(norm):
            raise self._error("the gradient is not finite", step, learning_rate)

    def validation(self, step: int, nats: float, learning_rate: float) -> None:
        """Check a validation's likelihood; raises as `step` does."""
        if not math.isfinite(nats):
            raise self._error("the validation loss is not finite", step, learning_rate)

    def weights(self, model: nn.Module, step: int, learning_rate: float) -> None:
        """Check the weights before they replace good ones; raises as `step` does."""
        sums = torch.stack([parameter.detach().sum(dtype=torch.float64).cpu() for parameter in model.parameters()])
        if not bool(sums.isfinite().all()):
            raise self._error("a weight is not finite", step, learning_rate)

    def _error(self, what: str, step: int, learning_rate: float) -> NonFiniteLossError:
        return NonFiniteLossError(what, step, list(self._norms), self.saved_step, learning_rate)
