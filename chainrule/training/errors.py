"""How a run can end before its time."""

from pathlib import Path


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
