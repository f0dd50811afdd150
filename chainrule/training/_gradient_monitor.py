"""Monitoring of gradients through time, warnings if they vanish or explode, and errors for non-finite losses."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.modes import widest
from chainrule.option_error import OptionError
from chainrule.state import State, select
from chainrule.training._batch import Batch
from chainrule.training._duration import Position
from chainrule.training._parallel import part_of

GradientProbe: TypeAlias = Callable[[AutoregressiveModel, Tensor, Tensor | None, State, Tensor | None], list[Tensor]]
ROWS = 4  # rows of a batch to measure; more rows cost more and show the same
EVERY, EVERY_ON_GPU = 20, 100  # steps between measurements: GPUs are slow at many small sequential products
FADED = 0.01  # share of the gradient at the loss below which it counts as vanished


@dataclass(frozen=True)
class Profile:
    r"""Gradient of a layer by the distance from the loss of a row's last step.

    .. math:: r_k = \frac{\sum_b \lVert \delta_{b, n_b - k} \rVert}{\sum_b \lVert \delta_{b, n_b} \rVert},
        \qquad \delta_{b,t} = \frac{\partial \ell_{b, n_b}}{\partial h_{b,t}}

    The sums are over the rows b that are longer than k.
    """

    norm: float  # mean ‖δ‖ at the loss, nats per unit of h
    relative: tuple[float, ...]  # r_0 = 1, r_1, ... up to the longest row; not finite if the gradient overflows

    @property
    def reach(self) -> int | None:
        """Steps after which r stays below 1%; None if the rows are too short.

        >>> Profile(1.0, (1.0, 0.2, 0.03, 0.009, 0.002)).reach
        3
        """
        reach = 1 + max((k for k, ratio in enumerate(self.relative) if not ratio < FADED), default=0)
        return reach if reach < len(self.relative) else None


class GradientMonitor:
    """Monitor that measures the gradients of a few rows at steps 1, 1 + every, ..., without changing anything."""

    def __init__(self, norms: GradientProbe, every: int):
        if every < 1:
            raise OptionError("watch_every", f"expected an integer >= 1, got {every}")
        self._norms, self._every = norms, every

    def due(self, step: int) -> bool:
        """Return true if step `step`, counted from 1, is measured."""
        return (step - 1) % self._every == 0

    def look(self, model: nn.Module, batch: Batch, state: State, device: torch.device) -> list[Profile]:
        """Measure the layers' profiles, bottom first, from the state before the batch; [] if no row has two steps."""
        assert isinstance(model, AutoregressiveModel)  # the probe rejects models without a recurrence
        size, time = batch.x.shape
        lengths = torch.full((size,), time, device="cpu") if batch.lengths is None else batch.lengths.cpu()
        rows = torch.nonzero(lengths > 1).flatten()[:ROWS]
        if not len(rows):
            return []
        lengths = lengths[rows]
        x, on_device = batch.x[rows, : int(lengths.max())].to(device), lengths.to(device)
        if batch.lengths is None and batch.previous is not None:
            norms = self._norms(model, x, on_device, select(state, rows.to(device)), batch.previous[rows].to(device))
        else:
            norms = self._norms(model, x, on_device, None, None)
        return [_profile(layer.cpu().double(), lengths) for layer in norms]


def record(profiles: list[Profile]) -> dict[str, Any]:
    """Convert profiles to JSON with four digits: ratios at distances 1, 2, 4, ... and the longest; null if not finite.

    >>> record([Profile(2.0, (1.0, 0.5, 0.25, 0.125))])
    {'distances': [1, 2, 3], 'layers': [{'norm': 2.0, 'relative': [0.5, 0.25, 0.125], 'reach': None}]}
    """
    farthest = len(profiles[0].relative) - 1
    distances = sorted({farthest, *(2**power for power in range(farthest.bit_length()))})
    return {
        "distances": distances,
        "layers": [
            {
                "norm": _figure(profile.norm),
                "relative": [_figure(profile.relative[distance]) for distance in distances],
                "reach": profile.reach,
            }
            for profile in profiles
        ],
    }


def _profile(norms: Tensor, lengths: Tensor) -> Profile:
    """Average norms (B, T), which are zero beyond the length of a row."""
    real = torch.arange(norms.shape[1], device="cpu") < lengths.unsqueeze(1)
    at_the_loss = (norms[:, :1] * real).sum(0)  # (T,), over the rows that are long enough
    relative = torch.where(at_the_loss > 0, norms.sum(0) / at_the_loss, 0.0)
    return Profile(float(norms[:, 0].mean()), tuple(relative.tolist()))


def _figure(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


DISTANCE = 16  # steps back from the loss at which the gradient must not have vanished
VANISHED = 1e-6  # share of the gradient at the loss that float32 nearly loses when the two are added
EXPLODED = 100.0  # factor over the gradient at the loss, at any distance
LOOKS = 3  # consecutive measurements before a warning
WINDOW, FAR_OVER = 100, 100.0  # steps, and factor over the clip norm: a PixelCNN++ learns well at 10 to 80


@dataclass(frozen=True)
class GradientWarning:
    """A warning about gradients, with a remedy."""

    about: Literal["vanishing", "exploding"]
    text: str


class GradientAlarms:
    """Alarms that are raised once per run; their counters are in the position, so resumed runs do not repeat them.

    - Vanishing: 16 steps back from the loss, no layer has more than a millionth of its gradient at the loss, in 3
      consecutive measurements.
    - Exploding: a layer's gradient grows to more than 100 times its value at the loss, in 3 consecutive measurements,
      or the norm of the whole gradient is above 100 times the clip norm at most of the steps 1–100, 101–200, ...
    """

    def __init__(self, position: Position, clip_norm: float | None, model: nn.Module):
        self._position, self._clip_norm, self._model = position, clip_norm, model

    def step(self, step: int, norm: float) -> GradientWarning | None:
        """Record a step's gradient norm before clipping."""
        position = self._position
        if self._clip_norm is None or self._is_exploding():
            return None
        position.steps_far_over += norm > FAR_OVER * self._clip_norm
        if self._is_exploding():
            over = f"the norm is above {FAR_OVER:g} times the clip norm of {self._clip_norm:g}"
            return self._exploded(f"{over} at most of the last {WINDOW} steps")
        if step % WINDOW == 0:
            position.steps_far_over = 0
        return None

    def look(self, profiles: list[Profile]) -> list[GradientWarning]:
        """Record a measurement of the gradients."""
        position, warnings = self._position, []
        if len(profiles[0].relative) > DISTANCE and position.vanished_looks < LOOKS:
            left = max(profile.relative[DISTANCE] for profile in profiles)
            position.vanished_looks = position.vanished_looks + 1 if left < VANISHED else 0
            if position.vanished_looks == LOOKS:
                warnings.append(self._vanished(left))
        if not self._is_exploding():
            grown = any(not ratio <= EXPLODED for profile in profiles for ratio in profile.relative)
            position.exploded_looks = position.exploded_looks + 1 if grown else 0
            if self._is_exploding():
                what = f"away from the loss they grow more than {EXPLODED:g}-fold"
                warnings.append(self._exploded(f"{what}, in {LOOKS} looks in a row"))
        return warnings

    def _is_exploding(self) -> bool:
        position = self._position
        return position.exploded_looks >= LOOKS or position.steps_far_over > WINDOW / 2

    def _vanished(self, left: float) -> GradientWarning:
        text = (
            f"gradients vanish: {DISTANCE} steps back from the loss {left:.1g} of them is left, in {LOOKS} looks in "
            f"a row, so nothing is learned from so far back: {_remedy(self._model)}"
        )
        return GradientWarning("vanishing", text)

    def _exploded(self, figures: str) -> GradientWarning:
        cell, remedy = _cell(self._model), "try a lower --learning-rate or a smaller --clip-norm"
        if cell is not None:
            remedy += ", a shorter --chunk-length" + (", or --model lstm or gru" if cell == "RNN" else "")
        return GradientWarning("exploding", f"gradients explode: {figures}: {remedy}")


def _remedy(model: nn.Module) -> str:
    slower = "a lower --learning-rate keeps units from saturating"
    match _cell(model):
        case "LSTM":
            return f"{slower}; forget gates want a bias of 1 or more at the start"
        case "GRU":
            return f"{slower}; update gates want a bias of 1 at the start, with which they keep their state"
        case "RNN":
            return f"try --model lstm or gru, or for a plain RNN --nonlinearity tanh with orthogonal weights; {slower}"
    return f"try gated units, LSTM or GRU; {slower}"


def _cell(model: nn.Module) -> str | None:
    """Return LSTM, GRU or RNN, the cell of the model's first recurrent layers, or None."""
    modes = (module.mode for module in model.modules() if isinstance(module, nn.RNNBase))
    return next(modes, "").partition("_")[0] or None


class NonFiniteLossError(ValueError):
    """Error: the loss, the gradient or a weight is not finite.

    Attributes:
        step: step of the error, counted from 1.
        norms: gradient norms (before clipping) of the last steps, oldest first.
        saved_step: step of the last good checkpoint, 0 without one.
    """

    def __init__(self, what: str, step: int, norms: list[float], saved_step: int, learning_rate: float):
        self.step = step
        self.norms = norms
        self.saved_step = saved_step
        history = ", ".join(f"{norm:.3g}" for norm in norms) or "none yet"
        saved = f"the checkpoint of step {saved_step} is kept" if saved_step else "no checkpoint had been written yet"
        super().__init__(
            f"{what} at step {step} (gradient norms up to it: {history}; learning rate {learning_rate:.3g}); "
            f"{saved}: start again with a lower learning_rate, a longer warmup or a smaller clip_norm, "
            "and if the precision was bfloat16 try float32"
        )


class Guard:
    """Check that raises `NonFiniteLossError`; the caller updates `saved_step` after each checkpoint."""

    def __init__(self, saved_step: int):
        self.saved_step = saved_step
        self._norms: deque[float] = deque(maxlen=12)

    def step(self, step: int, nats: float, norm: float, learning_rate: float) -> None:
        """Check a step's loss and gradient norm."""
        self._norms.append(norm)
        if not math.isfinite(nats):
            raise self._error("the loss is not finite", step, learning_rate)
        if not math.isfinite(norm):
            raise self._error("the gradient is not finite", step, learning_rate)

    def validation(self, step: int, nats: float, learning_rate: float) -> None:
        """Check a validation's likelihood."""
        if not math.isfinite(nats):
            raise self._error("the validation loss is not finite", step, learning_rate)

    def weights(self, finite: bool, step: int, learning_rate: float) -> None:
        """Check the weights before they replace a good checkpoint."""
        if not finite:
            raise self._error("a weight is not finite", step, learning_rate)

    def _error(self, what: str, step: int, learning_rate: float) -> NonFiniteLossError:
        return NonFiniteLossError(what, step, list(self._norms), self.saved_step, learning_rate)


def are_finite(model: nn.Module) -> bool:
    """Return whether the weights that this process holds are finite."""
    parts = [part_of(weight.detach()) for weight in model.parameters()]
    return bool(torch.stack([part.sum(dtype=widest(part.device)).cpu() for part in parts]).isfinite().all())
