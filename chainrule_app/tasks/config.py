"""Content of `config.json` of any run, checked when it is read: every key known, every value of its type and range.

The dataclasses of options are the option groups of `chainrule train`: a default is written once, and checked once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import reduce
from itertools import chain, takewhile
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from chainrule.option_error import OptionError, option
from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule.typed_json import described, field_types, read_value
from chainrule_app.readers.origin import DataSource
from chainrule_app.readers.text import public
from chainrule_app.tasks.display import parse_duration

FORMAT = 22
IN_MEMORY = " (in memory)"  # of a source that a config names but cannot hold
Options = TypeVar("Options")
SECTIONS = ("data", "model", "training", "computation", "facts", "settled", "init")

BatchSize = Annotated[int, Range(1, 1 << 24)]
LearningRate = Annotated[float, Range(0.0, 1e3)]
WeightDecay = Annotated[float, Range(0.0, 1e3)]
Warmup = Annotated[float, Range(0.0, 1.0)]
ClipNorm = Annotated[float, Range(0.0, 1e9)]
Steps = Annotated[int, Range(1, 1 << 53)]
Threads = Annotated[int, Range(1, 1 << 12)]
MinCount = Annotated[int, Range(1, 1 << 40)]
HeldOutShare = Annotated[float, Range(1e-4, 0.5)]
LengthPenalty = Annotated[float, Range(0.0, 1e9)]
Members = Annotated[int, Range(1, 16)]
Particles = Annotated[int, Range(1, 1 << 18)]
Paths = Annotated[int, Range(2, 1 << 20)]
Cell = Literal["lstm", "gru", "rnn"]
Number = Annotated[int, Range(1, 1 << 20)]  # of samples
Top = Annotated[int, Range(1, 1 << 30)]  # rows to show
Seed = Annotated[int, Range(0, (1 << 63) - 1)]  # which torch takes


class CheckedOptions:
    """Dataclass of options that checks itself: each field has its type, and numbers their `Range` in it."""

    def __post_init__(self) -> None:
        check_options(self)


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
class Duration(CheckedOptions):
    """Length of training: one of steps, epochs and budget."""

    steps: Steps | None = None
    epochs: Annotated[float, Range(1e-9, 1e9)] | None = None
    budget: Annotated[float, Range(1e-3, 1e9)] | None = None
    most_seconds: Annotated[float, Range(1e-3, 1e9)] | None = None  # budget from which steps or epochs were chosen

    @classmethod
    def of(cls, budget: str | float | None, steps: int | None, epochs: float | None, default: str) -> "Duration":
        """Return the requested duration, by default the budget `default`."""
        if budget is None and steps is None and epochs is None:
            budget = default
        return cls(steps, epochs, None if budget is None else parse_duration(str(budget)))

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [name for name, value in asdict(self).items() if value is not None and name != "most_seconds"]
        if len(lengths) > 1:
            one, other = lengths[:2]
            raise OptionError(other, f"{option(one)} is given, too", "drop one of them")


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
    n_best: Annotated[int, Range(1, 1 << 12)] = 1
    """Results per input, best first; at most --beam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise OptionError("n_best", f"expected 1 to {option('beam')}, {self.beam}, got {self.n_best}")


@dataclass(frozen=True)
class ChosenComputation(CheckedOptions):
    """Way to compute training steps, chosen when the run began; a resumed run keeps it."""

    threads: Threads = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    backend: Literal["auto", "vendor", "bptt"] = "auto"  # auto: each layer takes the kernel that suits its input


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a data file: its name without folders, its size and its SHA-256."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not 0 <= self.bytes < 1 << 63:
            raise ValueError(f"bytes: expected a size from 0 to {(1 << 63) - 1}, got {self.bytes!r:.80}")


@dataclass(frozen=True)
class SkippedFile:
    file: str
    reason: str


@dataclass(frozen=True)
class Counts:
    """Base of whole counts >= 0."""

    def __post_init__(self) -> None:
        for name, count in asdict(self).items():
            if count < 0:
                raise ValueError(f"{name}: expected a whole number >= 0, got {count}")


@dataclass(frozen=True)
class Parts(Counts):
    """Counts of the two parts of the data."""

    train: int
    valid: int


@dataclass(frozen=True)
class Facts:
    """Base of the facts about prepared data that the config keeps."""

    source: Fingerprint


@dataclass(frozen=True)
class Settled:
    """Options that chainrule chose when the run began, and the speed that they follow from."""

    options: list[str]
    passes: float | None = None  # passes over the data that fit the budget
    elements_per_second: float | None = None


@dataclass(frozen=True)
class InitialWeights:
    """Run that provides the initial weights, and the SHA-256 of their file."""

    run: str
    sha256: str


@dataclass(frozen=True)
class RunConfig:
    """Content of `config.json`."""

    sources: dict[str, Any]  # data files as the user named them, or data in memory, by the names in Task.SOURCES
    data: Any
    model: str
    options: Any
    duration: Duration
    training: Any
    computation: ChosenComputation | None = None  # None before the run begins
    facts: Any = None  # an instance of Task.Facts, once the data are prepared
    settled: Settled | None = None  # None if chainrule chose no options
    init: InitialWeights | None = None  # None for random weights

    def chosen(self) -> dict[str, Any]:
        """Return every option that chainrule chose, with its value: given again, they repeat the run."""
        values = asdict(self.options) | asdict(self.training) | asdict(self.duration)
        settled = {name: values[name] for name in (() if self.settled is None else self.settled.options)}
        settled = {name: value for name, value in settled.items() if value is not None or name != "epochs"}
        if self.computation is not None:
            ways = {name: getattr(self.computation, name) for name in ("threads", "precision", "backend")}
            open_ways = {name: way for name, way in ways.items() if values[name] in (None, "auto") and way != "auto"}
            settled |= open_ways
        return settled

    def to_json(self, task: str) -> dict[str, Any]:
        from chainrule import __version__

        return {
            "format": FORMAT,
            "chainrule": __version__,
            "task": task,
            "data": {"sources": dict(zip(self.sources, map(recorded_source, self.sources.values()), strict=True))}
            | asdict(self.data),
            "facts": None if self.facts is None else asdict(self.facts),
            "model": {"name": self.model, "options": asdict(self.options)},
            "training": {**asdict(self.duration), **asdict(self.training)},
            "computation": None if self.computation is None else asdict(self.computation),
            "settled": None if self.settled is None else asdict(self.settled),
            "init": None if self.init is None else asdict(self.init),
        }


def recorded_source(source: Any) -> str | None:
    """Return a source as the config keeps it: of data in memory, which it does not hold, the name of the argument."""
    if isinstance(source, str):
        return public(source)
    return None if source is None else f"{source}{IN_MEMORY}"


def check_settled(config: RunConfig, *, timed: bool) -> None:
    """Check the record of chosen options; what was timed has both its passes and its speed."""
    settled = config.settled
    if settled is None:
        return
    names = [item.name for section in (config.options, config.training, config.duration) for item in fields(section)]
    if unknown := [name for name in settled.options if name not in names]:
        raise ValueError(f"settled.options: expected names of options, got {unknown[0]!r:.80}")
    if timed and (settled.passes is None) != (settled.elements_per_second is None):
        raise ValueError("settled: expected the passes and elements a second that were timed, got null")


def format_in(content: Any) -> int:
    if not isinstance(content, dict) or "format" not in content or "chainrule" not in content:
        raise ValueError("expected an object with the keys format and chainrule: this is not a chainrule run")
    if type(content["format"]) is not int or content["format"] < 1:
        raise ValueError(f"format: expected {FORMAT}, got {content['format']!r}")
    return content["format"]


def task_in(content: Any) -> str:
    """Return the task of a run, if this version reads its format."""
    if format_in(content) != FORMAT:
        other = "a newer" if content["format"] > FORMAT else "the older"
        raise ValueError(
            f"format: this version reads {FORMAT}, the run has {content['format']} "
            f"(written by chainrule {content['chainrule']}): install {other} chainrule, or train again"
        )
    if not isinstance(content.get("task"), str):
        raise OptionError("task", f"expected the name of a task, got {content.get('task')!r:.80}")
    return content["task"]


def facts_of(kind: type[Options], results: Mapping[str, Any]) -> Options:
    """Select the facts, a dataclass, from all results of preparing data."""
    return cast(Options, read_value(kind, {name: results[name] for name in field_types(kind)}, "facts"))


def check_options(options: Any) -> None:
    """Check every field of a dataclass against its annotation.

    >>> OptimisationOptions(batch_size=0)
    Traceback (most recent call last):
    chainrule.option_error.OptionError: batch_size: expected a whole number from 1 to 16777216, got 0
    """
    hints = get_type_hints(type(options), include_extras=True)
    for item in fields(options):
        check_value(item.name, hints[item.name], getattr(options, item.name))


def check_value(name: str, hint: Any, value: Any) -> None:
    """Raise OptionError for a value that an annotation does not allow."""
    plain, bounds = _plain(hint), range_of(hint)
    if value is None and NoneType in get_args(plain):
        return
    try:
        read_value(plain, value, name)
        fits = bounds is None or bounds.low <= value <= bounds.high
    except ValueError:
        fits = isinstance(value, Path | DataSource)  # JSON has neither
    if not fits:
        span = "" if bounds is None else f" from {bounds.low} to {bounds.high}"
        raise OptionError(name, f"expected {described(plain)}{span}, got {one_line(f'{value!r:.80}')}")


def range_of(hint: Any) -> Range | None:
    """Return the range in an annotation, if there is one.

    >>> range_of(Seed | None).low
    0
    """
    found = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Range)]
    return next(chain(found, filter(None, map(range_of, get_args(hint)))), None)


def _plain(hint: Any) -> Any:
    """Return an annotation without what `Annotated` adds to it."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    return reduce(or_, map(_plain, get_args(hint))) if get_origin(hint) in (UnionType, Union) else hint


@dataclass(frozen=True)
class Source:
    """Data file that `chainrule train` takes."""

    help: str
    flag: str = "DATA"  # "DATA" is the positional argument
    alias: str = ""  # flag that may replace DATA, if any
    alias_help: str = ""
    needed: str = ""  # description for the error if it is missing; empty if optional

    def argument(self, name: str) -> str:
        """Return the keyword argument of `chainrule.fit` for the source of a name."""
        return "data" if self.flag == "DATA" else name


def run_word(source: str) -> str:
    """Derive the name of a run directory from its data.

    >>> run_word("logs/access.log.gz"), run_word("logs/*.gz"), run_word("-"), run_word("a.txt b.txt")
    ('access.log', 'logs', 'standard-input', 'a.txt-b')
    """
    if source == "-":
        return "standard-input"
    path = Path(source)
    if any(sign in source for sign in "*?[") and not path.exists():
        path = Path(*takewhile(lambda part: not any(sign in part for sign in "*?["), path.parts))
    name = path.resolve().name if path.name in ("", ".", "..") else path.name
    stem = name if path.is_dir() else Path(name).stem
    return "".join(sign if sign.isalnum() or sign in "._-+" else "-" for sign in stem) or "data"
