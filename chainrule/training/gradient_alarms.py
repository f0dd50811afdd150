"""When a gradient that vanishes or explodes is worth a warning, and what helps."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from chainrule.training.gradient_monitor import Profile
from chainrule.training.position import Position

DISTANCE = 16  # steps back from the loss at which a gradient has to be there
VANISHED = 1e-6  # of the gradient at the loss: next to that, float32 all but loses it when the two are added
EXPLODED = 100.0  # times the gradient at the loss, at any distance
LOOKS = 3  # in a row
WINDOW, FAR_OVER = 100, 10.0  # steps; times the clip norm


@dataclass(frozen=True)
class GradientWarning:
    """What is wrong, in figures, with the remedy."""

    about: Literal["vanishing", "exploding"]
    text: str


class GradientAlarms:
    """Raises each alarm once a run. What it remembers is in the position, so that a resumed run raises none again.

    - Vanishing: 16 steps back from the loss, no layer has more than a millionth of its gradient at the loss, in 3 looks
      in a row.
    - Exploding: some layer's gradient grows to more than 100 times that at the loss, in 3 looks in a row; or the norm
      of the whole gradient is above 10 times the clip norm at more than half of the steps 1–100, 101–200, ...

    Args:
        position: counts what was seen; an alarm that was raised keeps its count.
        clip_norm: None where nothing is clipped, and the norm raises no alarm.
        model: its cell decides on the remedy.
    """

    def __init__(self, position: Position, clip_norm: float | None, model: nn.Module):
        self._position, self._clip_norm, self._model = position, clip_norm, model

    def step(self, step: int, norm: float) -> GradientWarning | None:
        """Take note of a step's gradient norm before clipping."""
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
        """Take note of a look at the gradients."""
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
        remedy = "try a lower --learning-rate, a smaller --clip-norm or a shorter --chunk-length"
        if _cell(self._model) == "RNN":
            remedy += ", or --model lstm or gru"
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
    """LSTM, GRU or RNN: that of the model's first recurrent layers."""
    modes = (module.mode for module in model.modules() if isinstance(module, nn.RNNBase))
    return next(modes, "").partition("_")[0] or None
