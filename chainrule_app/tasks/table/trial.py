"""Short trials before the training of a table: after how many passes a network stops improving on held-out rows."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

from chainrule_app.heavy import modes, torch
from chainrule_app.printing import format_passes

if TYPE_CHECKING:
    from chainrule import TrainableModel
    from chainrule.training import TrainingBatches
    from chainrule_app.tasks.options import OptimisationOptions

    Measure = Callable[[TrainableModel], torch.Tensor]

_SHARES, _LONGEST = (0.06, 0.14), (15.0, 35.0)  # of a budget, for each of two trials; seconds
_OF_LIMIT = (0.2, 0.5)  # of the passes that a training may take: longer trials tell little more
_VALIDATIONS = 12
_PATIENCE = 3
_WARM_UP = 3  # steps
_LONGER = 2.0  # passes of the training ÷ those of the best trial: its learning rate falls to the end
_FEWEST, _FEWEST_STEPS = 12.0, 150  # passes and steps that a training may take where trials found no end


@dataclass(frozen=True)
class Trial:
    passes: float  # over the rows
    best: float  # passes until the best validation
    overfitted: bool  # whether the last validations were worse

    def most_passes(self, limit: float, steps_per_epoch: int) -> float:
        """Return the passes that a training should take at most.

        >>> Trial(8.0, 3.0, True).most_passes(100.0, 50), Trial(8.0, 8.0, False).most_passes(100.0, 50)
        (6.0, 16.0)
        >>> Trial(0.5, 0.5, False).most_passes(100.0, 50), Trial(0.5, 0.5, False).most_passes(100.0, 5)
        (12.0, 30.0)
        """
        least = 1.0 if self.overfitted else max(_FEWEST, _FEWEST_STEPS / steps_per_epoch)
        return round(min(limit, max(least, _LONGER * self.best)), 1)

    def __str__(self) -> str:
        passes = format_passes(self.best if self.overfitted else self.passes, "rows")
        if self.overfitted:
            return f"a trial stopped improving after {passes}: more would overfit, and the rest trains further models"
        return f"a trial of {passes} still improved at its end"


def try_training(
    model: "TrainableModel",
    batches: "TrainingBatches",
    held_out_nats: "Measure",
    training: "OptimisationOptions",
    device: "torch.device",
    budget: float,
    limit: float,
) -> Trial:
    """Train copies of a model for a few hundredths of a budget and for twice as long, and see which one is better.

    A trial ends early where its held-out nats have become worse three times. Worse are those that exceed others by
    more than the standard error of the difference over the rows: a few rows, or the nats of one column, go up and
    down by chance. A network that has not read the rows once cannot know them by heart, so that nothing counts before.
    The learning rate of each trial falls to its end: the two ends show what more passes are worth, where the course of
    one does not.

    Args:
        model: a new model.
        batches: of the training rows.
        held_out_nats: nats of each held-out row, (B,).
        training: the options of the training.
        device: to compute on.
        budget: seconds of the whole training.
        limit: passes of the training at most.
    """
    before: torch.Tensor | None = None
    passes = 0.0
    for share, longest, part in zip(_SHARES, _LONGEST, _OF_LIMIT, strict=True):
        seconds, steps = min(share * budget, longest), max(part * limit * batches.steps_per_epoch, 1)
        trial, nats = _tried(model, batches, held_out_nats, training, device, seconds, steps)
        if before is not None and nats is not None and _is_worse(nats - before):
            return Trial(trial.passes, min(trial.best, passes), True)
        if trial.overfitted:
            break
        before, passes = nats, trial.passes
    return trial


def _tried(
    model: "TrainableModel",
    batches: "TrainingBatches",
    held_out_nats: "Measure",
    training: "OptimisationOptions",
    device: "torch.device",
    seconds: float,
    most_steps: float,
) -> "tuple[Trial, torch.Tensor | None]":
    """Return a trial, and its last nats of each row if it has read all rows."""
    from chainrule.training import learning_rate, make_optimiser

    decay = 0.01 if training.weight_decay is None else training.weight_decay
    validated = list[tuple[torch.Tensor, int]]()  # nats of each row, and step, once all rows were read
    validations = stale = at = 0
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
    steps = batches.steps_per_epoch
    return Trial(step / steps, (at or step) / steps, stale >= _PATIENCE), validated[-1][0] if validated else None


def _is_worse(difference: "torch.Tensor") -> bool:
    """Return whether the mean of differences, (B,), exceeds its standard error."""
    return bool(difference.mean() > difference.std(correction=0) / len(difference) ** 0.5)
