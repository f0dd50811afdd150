"""Options of training."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from torch import nn

from chainrule.layers._low_rank import adaptable
from chainrule.option_error import OptionError, option

DEFAULT_BUDGET = 180.0  # seconds, without steps, epochs or budget


@dataclass(frozen=True)
class TrainingOptions:
    """Options of training. Set at most one of `steps`, `epochs` and `budget`; the default is a budget of 180 seconds.

    Args:
        steps: number of weight updates.
        epochs: passes over the training data; a fraction is allowed.
        budget: wall-clock seconds for everything, including validation and saving. The time before the first step
            counts up to a fifth of the budget, and not at all for a resumed run.
        most_seconds: wall-clock limit of a run of steps or epochs, measured like a budget.
        batch_size: number of rows per batch, over all processes.
        chunk_length: number of elements that gradients flow through (truncated backpropagation through time).
        line_length: maximum number of elements per line, if each line is a sequence.
        optimiser: adamw, or muon (orthogonal steps for the matrices of layers, AdamW for all other weights).
        learning_rate: peak learning rate.
        weight_decay: decoupled weight decay of matrices; biases and gains have none.
        warmup: fraction of the run in which the learning rate rises linearly.
        clip_norm: maximum global norm of the gradient; None disables clipping.
        validate_every: steps between validations; by default ten to a hundred per run, on less data if they are slow.
        patience: stop after this many consecutive validations without improvement; None never stops early.
        precision: bfloat16 multiplies in half precision (weights stay float32); auto does so if the device supports it.
        seed: seed of all randomness of training (dropout).
        device: auto, cpu, cuda or cuda:N; auto uses a GPU if there is one.
        lora_rank: rank of the changes that training gives to the linear layers of attention and feed-forward networks
            (LoRA, Hu et al. 2021) while all other weights are fixed; the trained model has them in its weights. None
            trains all weights.
        lora_alpha: the changes are α / rank · B A; twice the rank by default.
        shard: divide weights, gradients and moments among the processes of torchrun (FSDP2), so that each holds a part.
            Weights and moments of checkpoints are then in `checkpoint-0` or `checkpoint-1`, folders of
            `torch.distributed.checkpoint`, which any number of processes resumes.
        watch_every: steps between measurements by a gradient probe; default 20 steps, on a GPU 100.

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
    lora_rank: int | None = None
    lora_alpha: float | None = None
    shard: bool = False
    watch_every: int | None = None

    def __post_init__(self) -> None:
        durations = [name for name in DURATIONS if getattr(self, name) is not None]
        if len(durations) > 1:
            raise OptionError(
                durations[1], f"expected at most one of steps, epochs and budget, got {' and '.join(durations)}"
            )
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise OptionError(name, f"expected an integer >= 1, got {value!r}")
        for name in ("epochs", "budget", "most_seconds", "learning_rate", "clip_norm", "lora_alpha"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise OptionError(name, f"expected a finite number > 0, got {value}")
        if not 0 <= self.weight_decay < math.inf:
            raise OptionError("weight_decay", f"expected a finite number >= 0, got {self.weight_decay}")
        if not 0 <= self.warmup < 1:
            raise OptionError("warmup", f"expected a fraction of the run in [0, 1), got {self.warmup}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise OptionError("precision", f"expected auto, float32 or bfloat16, got {self.precision!r}")
        if self.optimiser not in ("adamw", "muon"):
            raise OptionError("optimiser", f"expected adamw or muon, got {self.optimiser!r}")
        if self.lora_rank is not None and self.optimiser != "adamw":
            raise OptionError("lora_rank", f"requires {option('optimiser', 'adamw')}, got {self.optimiser}")
        if self.lora_rank is None and self.lora_alpha is not None:
            raise OptionError("lora_alpha", f"requires {option('lora_rank')}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise OptionError("seed", f"expected an integer >= 0, got {self.seed!r}")

    def check_model(self, model: nn.Module) -> None:
        """Raise ValueError for a model that these options cannot train."""
        if self.lora_rank is not None:
            adaptable(model)

    def check_unchanged(self, earlier: Mapping[str, Any]) -> None:
        """Raise ValueError if options of a resumed run differ from the checkpoint's, except those in `MAY_CHANGE`."""
        now = asdict(self)
        changed = [
            f"{field.name} was {earlier.get(field.name, field.default)} and is {now[field.name]}"
            for field in fields(self)
            if field.name not in MAY_CHANGE and earlier.get(field.name, field.default) != now[field.name]
        ]
        if changed:
            raise ValueError(
                f"resume: expected the options the run began with, got changes: {'; '.join(changed)}: "
                "resume with the old values, or start a new run"
            )


DURATIONS = ("steps", "epochs", "budget")
COUNTS = (
    "steps",
    "batch_size",
    "chunk_length",
    "line_length",
    "validate_every",
    "patience",
    "lora_rank",
    "watch_every",
)
MAY_CHANGE = frozenset((*DURATIONS, "most_seconds", "patience", "device", "watch_every"))
