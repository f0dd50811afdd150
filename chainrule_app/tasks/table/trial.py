"""A short trial before the training of a table: after how many passes a network stops improving on held-out rows."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

from chainrule_app.heavy import modes, torch
from chainrule_app.tasks.display import format_passes

if TYPE_CHECKING:
    from chainrule import TrainableModel
    from chainrule.training import TrainingBatches
    from chainrule_app.tasks.config import OptimisationOptions

_SHARE, _LONGEST = 0.1, 30.0  # of a budget; seconds
_VALIDATIONS = 12
_PATIENCE = 3
_WARM_UP = 3  # steps
_LONGER = 2.0  # passes of the training ÷ those of the trial's best: its learning rate falls to the end
_QUARTER = 0.25  # of the passes that a training may take: a longer trial tells little more


@dataclass(frozen=True)
class Trial:
    passes: float  # over the rows
    best: float  # passes until the best validation
    overfitted: bool  # whether the last validations were worse

    def most_passes(self, limit: float) -> float:
        """Return the passes that a training should take at most.

        >>> Trial(8.0, 3.0, True).most_passes(100.0), Trial(8.0, 8.0, False).most_passes(100.0)
        (6.0, 100.0)
        """
        return round(min(limit, max(1.0, _LONGER * self.best)), 1) if self.overfitted else limit

    def __str__(self) -> str:
        passes = format_passes(self.best if self.overfitted else self.passes, "rows")
        if self.overfitted:
            return f"a trial stopped improving after {passes}: more would overfit, and the rest trains further models"
        return f"a trial of {passes} still improved at its end"


def try_training(
    model: "TrainableModel",
    batches: "TrainingBatches",
    held_out_nats: "Callable[[TrainableModel], torch.Tensor]",
    training: "OptimisationOptions",
    device: "torch.device",
    budget: float,
    limit: float,
) -> Trial:
    """Train a copy of a model for a tenth of a budget, or until its held-out nats have become worse three times.

    Worse are those of a validation that exceed the best ones by more than the standard error of the difference over
    the rows: a few rows, or the nats of one column, go up and down by chance. A network that has not read the rows
    once cannot know them by heart, so that nothing counts before.

    Args:
        model: a new model.
        batches: of the training rows.
        held_out_nats: nats of each held-out row, (B,).
        training: the options of the training.
        device: to compute on.
        budget: seconds of the whole training.
        limit: passes of the training at most, of which a trial takes a quarter at most.
    """
    from chainrule.training import learning_rate, make_optimiser

    decay = 0.01 if training.weight_decay is None else training.weight_decay
    seconds, most_steps = min(_SHARE * budget, _LONGEST), max(_QUARTER * limit * batches.steps_per_epoch, 1)
    validated = list[tuple[torch.Tensor, int]]()  # nats of each row, and step, once all rows were read
    validations = stale = 0
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # dropout draws from the global generator
        modes.seed_torch(training.seed)
        trial = deepcopy(model).to(device).train()
        optimiser = make_optimiser(trial, training.learning_rate, decay, training.optimiser)
        began = monotonic()  # and once more after the first steps, which load and compile kernels
        for step in count(1):
            if step == _WARM_UP:
                began = monotonic()
            progress = min(max((monotonic() - began) / seconds, step / most_steps), 1.0)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(progress, training.learning_rate, training.warmup)
            optimiser.zero_grad()
            (-trial.training_objective(batches.at(step - 1).x.to(device)).mean()).backward()
            torch.nn.utils.clip_grad_norm_(trial.parameters(), training.clip_norm or torch.inf)
            optimiser.step()
            if progress * _VALIDATIONS >= validations + 1 or progress == 1:
                validations += 1
                if step >= batches.steps_per_epoch:
                    with torch.no_grad():
                        validated.append((held_out_nats(trial.eval()), step))
                    trial.train()
                    best, at = min(validated, key=lambda entry: float(entry[0].mean()))
                    stale = sum(_is_worse(nats - best) for nats, later in validated if later > at)
            if stale >= _PATIENCE or progress == 1:
                break
    if not validated:
        at = step
    return Trial(step / batches.steps_per_epoch, at / batches.steps_per_epoch, stale >= _PATIENCE)


def _is_worse(difference: "torch.Tensor") -> bool:
    """Return whether the mean of differences, (B,), exceeds its standard error."""
    return bool(difference.mean() > difference.std(correction=0) / len(difference) ** 0.5)
