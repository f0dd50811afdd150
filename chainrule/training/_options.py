"""Options of training."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

DEFAULT_BUDGET = 180.0  # seconds, where neither steps, epochs nor budget is given


@dataclass(frozen=True)
class TrainingOptions:
    """How long and how to train. At most one of `steps`, `epochs` and `budget`; none means a budget of 180 seconds.

    Args:
        steps: number of weight updates.
        epochs: passes over the training data; a fraction is allowed.
        budget: wall-clock seconds for everything, validation and saving included. The time before the first step of a
            run counts up to a fifth of the budget; that of a resumed run does not count.
        most_seconds: wall-clock seconds after which a run of steps or epochs ends too, counted as those of a budget.
        batch_size: rows of a batch, over all processes.
        chunk_length: elements of a row that gradients flow through (truncated backpropagation through time).
        line_length: elements after which a line is cut, where each line is a sequence.
        optimiser: adamw, or muon: orthogonal steps for the matrices of layers, AdamW for all other weights.
        learning_rate: peak learning rate.
        weight_decay: decoupled weight decay of matrices; biases and gains have none.
        warmup: fraction of the run in which the learning rate rises linearly.
        clip_norm: largest global norm of the gradient; None leaves it as it is.
        validate_every: steps between validations; None spaces about ten over the run, cheaper ones where they are slow.
        patience: stop after this many validations in a row without improvement; None never does.
        precision: bfloat16 multiplies in half precision (weights stay float32); auto does so where the device has it.
        seed: seed of all randomness of training (dropout).
        device: auto, cpu, cuda or cuda:N; auto takes a GPU if there is one.
        watch_every: steps between looks at the gradients, where training is given something to look with; None looks
            every 20 steps, on a GPU every 100.

    Raises:
        ValueError: a value outside its range.

    >>> TrainingOptions(steps=1000, learning_rate=1e-3).steps
    1000
    """

    steps: int | None = None
    epochs: float | None = None
    budget: float | None = None
    most_seconds: float | None = None
    batch_size: int = 32
    chunk_length: int = 64
    line_length: int = 1024
    optimiser: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 6e-3
    weight_decay: float = 0.01
    warmup: float = 0.03
    clip_norm: float | None = 1.0
    validate_every: int | None = None
    patience: int | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 0
    device: str = "auto"
    watch_every: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in DURATIONS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"steps, epochs, budget: expected at most one, got {' and '.join(given)}: drop one")
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}: expected an integer >= 1, got {value}")
        for name in ("epochs", "budget", "most_seconds", "learning_rate", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a finite number > 0, got {value}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay: expected a finite number >= 0, got {self.weight_decay}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup: expected a fraction of the run in [0, 1), got {self.warmup}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"precision: expected auto, float32 or bfloat16, got {self.precision!r}")
        if self.optimiser not in ("adamw", "muon"):
            raise ValueError(f"optimiser: expected adamw or muon, got {self.optimiser!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed: expected an integer >= 0, got {self.seed}")

    def check_unchanged(self, earlier: Mapping[str, Any]) -> None:
        """Refuse to resume a run under options that would make another run of it.

        How long the run lasts, when it gives up, where it computes and what it logs may change; the learning-rate
        schedule is a function of progress, so a longer run resumes at its place in the longer schedule.

        Args:
            earlier: the options as the checkpoint holds them.

        Raises:
            ValueError: names each option that changed, with its old and new value.
        """
        now = asdict(self)
        changed = [
            f"{field.name} was {earlier.get(field.name)} and is {now[field.name]}"
            for field in fields(self)
            if field.name not in MAY_CHANGE and earlier.get(field.name) != now[field.name]
        ]
        if changed:
            raise ValueError(
                f"resume: expected the options the run began with, got changes: {'; '.join(changed)}: "
                "resume with the old values, or start a new run"
            )


DURATIONS = ("steps", "epochs", "budget")
COUNTS = ("steps", "batch_size", "chunk_length", "line_length", "validate_every", "patience", "watch_every")
MAY_CHANGE = frozenset((*DURATIONS, "most_seconds", "patience", "device", "watch_every"))
