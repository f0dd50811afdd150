"""Options that tasks share: their types and ranges, and the groups of flags that several tasks have."""

from dataclasses import dataclass
from typing import Annotated, Literal

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.tasks.config import CheckedOptions, Steps, Threads

BatchSize = Annotated[int, Range(1, 1 << 24)]
LearningRate = Annotated[float, Range(0.0, 1e3)]
WeightDecay = Annotated[float, Range(0.0, 1e3)]
Warmup = Annotated[float, Range(0.0, 1.0)]
ClipNorm = Annotated[float, Range(0.0, 1e9)]
MinCount = Annotated[int, Range(1, 1 << 40)]
HeldOutShare = Annotated[float, Range(1e-4, 0.5)]
LengthPenalty = Annotated[float, Range(0.0, 1e9)]
Members = Annotated[int, Range(1, 16)]
Particles = Annotated[int, Range(1, 1 << 18)]
Paths = Annotated[int, Range(2, 1 << 20)]
Horizon = Annotated[int, Range(1, 1 << 20)]
NBest = Annotated[int, Range(1, 1 << 12)]
Components = Annotated[int, Range(1, 1024)]  # of a mixture
CaptionLength = Annotated[int, Range(1, 1 << 16)]
Errors = Annotated[int, Range(0, 1 << 30)]  # to show
Cell = Literal["lstm", "gru", "rnn"]
Top = Annotated[int, Range(1, 1 << 30)]  # rows to show
Seed = Annotated[int, Range(0, (1 << 63) - 1)]  # which torch takes


@dataclass(frozen=True)
class SplitOptions(CheckedOptions):
    """Options for holding out a part of the data."""

    validation_fraction: HeldOutShare = 0.1
    """Share of the data to hold out without --validation."""


@dataclass(frozen=True)
class HeaderOptions(SplitOptions):
    """Options for reading a file of columns and holding out rows."""

    header: Literal["auto", "yes", "no"] = "auto"
    """Treat the first row as a header; auto detects it."""

    @property
    def has_header(self) -> bool | None:
        """True or False as requested; None to detect it."""
        return {"auto": None, "yes": True, "no": False}[self.header]


@dataclass(frozen=True)
class OptimisationOptions(CheckedOptions):
    """Training options of every task; a task changes defaults and adds options in a subclass."""

    batch_size: BatchSize = 32
    """Batch size."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon: orthogonal steps for the matrices of layers, AdamW for the rest."""
    learning_rate: LearningRate = 6e-3
    """Peak learning rate."""
    weight_decay: WeightDecay | None = None  # a float in every run that trains
    """Decoupled weight decay of matrices; 0.01 by default, or chosen by a rule of the task."""
    warmup: Warmup = 0.03
    """Share of the run in which the learning rate rises."""
    clip_norm: ClipNorm | None = 1.0
    """Maximum global norm of the gradient."""
    validate_every: Steps | None = None
    """Steps between validations; ten to a hundred validations per run by default."""
    patience: Steps | None = None
    """Stop after this many validations without improvement; never by default."""
    lora_rank: Annotated[int, Range(1, 1 << 16)] | None = None
    """Train only changes of this rank of the linear layers of Transformer blocks (LoRA); requires --from."""
    lora_alpha: Annotated[float, Range(0.0, 1e6)] | None = None
    """α of the changes α / rank · B A; twice the rank by default."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto follows a rule of processor and model."""
    threads: Threads | None = None
    """CPU threads; by default more for larger models and batches."""
    backend: Literal["auto", "vendor", "bptt"] = "auto"
    """Kernel of recurrent layers: vendor (oneDNN, cuDNN) or bptt (step by step); auto follows a rule."""
    seed: Seed = 0
    """The same seed gives the same run on the same machine."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or mps."""
    shard: bool = False
    """Divide weights, gradients and optimiser state among the processes of torchrun or Ray (FSDP2)."""
    track: Literal["tensorboard", "mlflow", "wandb"] | None = None
    """Also log training figures to TensorBoard (files in the run), MLflow or Weights & Biases."""
    samples: bool = True
    """Save samples drawn at validations to samples.jsonl, for `chainrule report`."""


@dataclass(frozen=True)
class SearchOptions(CheckedOptions):
    beam: Annotated[int, Range(1, 1 << 12)] = 5
    """Prefixes kept alive by the search; 1 is greedy."""
    length_penalty: LengthPenalty = 1.0
    """α of the score log p / length^α that ranks the results."""


@dataclass(frozen=True)
class NBestOptions(SearchOptions):
    n_best: NBest = 1
    """Results per input, best first; at most --beam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise OptionError("n_best", f"expected 1 to {option('beam')}, {self.beam}, got {self.n_best}")


@dataclass(frozen=True)
class TemperatureOptions(CheckedOptions):
    temperature: float = 1.0  # `Categorical.check_filters` knows the ranges of filters
    """Sampling temperature: 1 is the model's distribution, lower values are less varied, 0 is greedy."""
