"""The watch over numbers that stop being numbers."""

import math
from collections import deque

import torch
from torch import nn

from chainrule.training.errors import NonFiniteLossError


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
