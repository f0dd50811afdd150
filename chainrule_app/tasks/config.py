"""Content of `config.json` of any run, checked when it is read: every key known, every value of its type and range.

The dataclasses of options are the option groups of `chainrule train`: a default is written once, and checked once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from itertools import takewhile
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args

from chainrule.option_error import OptionError, UserError, option
from chainrule.printing import one_line
from chainrule.typed_json import described, field_types, read_value
from chainrule_app.readers.origin import DataSource
from chainrule_app.tasks.display import flags_of, parse_duration

FORMAT = 20
IN_MEMORY = " (in memory)"  # of a source that a config names but cannot hold

Options = TypeVar("Options")
MOST_SEED = (1 << 63) - 1
SECTIONS = ("data", "model", "training", "computation", "facts", "settled", "init")


def within(default: Any, low: float, high: float = math.inf) -> Any:
    return field(default=default, metadata={"range": (low, high)})


def options_class(name: str, options: Iterable[tuple[str, Any, Any]], base: type = object) -> type:
    """Make a frozen dataclass from (name, type, `dataclasses.field`) of each option."""
    options_type = make_dataclass(name, list(options), bases=() if base is object else (base,), frozen=True)
    options_type.__module__ = __name__  # dataclasses says "types", which the parser takes for the standard library
    return options_type


class CheckedOptions:
    """Dataclass of options that checks itself; its fields have ranges from `within`."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class SplitOptions(CheckedOptions):
    """Options for holding out a part of the data."""

    validation_fraction: float = within(0.1, 1e-4, 0.5)
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

    steps: int | None = within(None, 1, 1 << 53)
    epochs: float | None = within(None, 1e-9, 1e9)
    budget: float | None = within(None, 1e-3, 1e9)
    most_seconds: float | None = within(None, 1e-3, 1e9)  # budget from which steps or epochs were chosen

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
            raise UserError(
                f"{lengths[1]}",
                f"expected one of {option('budget')}, {option('steps')} and {option('epochs')}, got "
                + " and ".join(lengths),
            )


@dataclass(frozen=True)
class OptimisationOptions(CheckedOptions):
    """Training options of every task; a task changes defaults and adds options in a subclass."""

    batch_size: int = within(32, 1, 1 << 24)
    """Batch size."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon: orthogonal steps for the matrices of layers, AdamW for the rest."""
    learning_rate: float = within(6e-3, 0.0, 1e3)
    """Peak learning rate."""
    weight_decay: float | None = within(None, 0.0, 1e3)  # a float in every run that trains
    """Decoupled weight decay of matrices; 0.01 by default, or chosen by a rule of the task."""
    warmup: float = within(0.03, 0.0, 1.0)
    """Share of the run in which the learning rate rises."""
    clip_norm: float | None = within(1.0, 0.0, 1e9)
    """Maximum global norm of the gradient."""
    validate_every: int | None = within(None, 1, 1 << 53)
    """Steps between validations; about ten validations per run by default."""
    patience: int | None = within(None, 1, 1 << 53)
    """Stop after this many validations without improvement; never by default."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto follows a rule of processor and model."""
    threads: int | None = within(None, 1, 1 << 12)
    """CPU threads; by default more for larger models and batches."""
    backend: Literal["auto", "vendor", "bptt"] = "auto"
    """Kernel of recurrent layers: vendor (oneDNN, cuDNN) or bptt (step by step); auto follows a rule."""
    seed: int = within(0, 0, MOST_SEED)
    """The same seed gives the same run on the same machine."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or mps."""
    track: Literal["tensorboard", "mlflow", "wandb"] | None = None
    """Also log training figures to TensorBoard (files in the run), MLflow or Weights & Biases."""
    samples: bool = True
    """Save samples drawn at validations to samples.jsonl, for `chainrule report`."""


@dataclass(frozen=True)
class SearchOptions(CheckedOptions):
    beam: int = within(5, 1, 1 << 12)
    """Prefixes kept alive by the search; 1 is greedy."""
    length_penalty: float = within(1.0, 0.0, 1e9)
    """α of the score log p / length^α that ranks the results."""


@dataclass(frozen=True)
class NBestOptions(SearchOptions):
    n_best: int = within(1, 1, 1 << 12)
    """Results per input, best first; at most --beam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise OptionError("n_best", f"expected 1 to {option('beam')}, {self.beam}, got {self.n_best}")


@dataclass(frozen=True)
class ChosenComputation(CheckedOptions):
    """Way to compute training steps, chosen when the run began; a resumed run keeps it."""

    threads: int = within(1, 1, 1 << 12)
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

    def chosen_flags(self) -> str:
        """Return the flags that repeat every option that chainrule chose; empty if it chose none."""
        values = asdict(self.options) | asdict(self.training) | asdict(self.duration)
        settled = {name: values[name] for name in (() if self.settled is None else self.settled.options)}
        settled = {name: value for name, value in settled.items() if value is not None or name != "epochs"}
        if self.computation is not None:
            ways = {name: getattr(self.computation, name) for name in ("threads", "precision", "backend")}
            open_ways = {name: way for name, way in ways.items() if values[name] in (None, "auto") and way != "auto"}
            settled |= open_ways
        return flags_of(settled)

    def to_json(self, task: str) -> dict[str, Any]:
        from chainrule import __version__

        return {
            "format": FORMAT,
            "chainrule": __version__,
            "task": task,
            "data": {"sources": {name: _recorded(own) for name, own in self.sources.items()}, **asdict(self.data)},
            "facts": None if self.facts is None else asdict(self.facts),
            "model": {"name": self.model, "options": asdict(self.options)},
            "training": {**asdict(self.duration), **asdict(self.training)},
            "computation": None if self.computation is None else asdict(self.computation),
            "settled": None if self.settled is None else asdict(self.settled),
            "init": None if self.init is None else asdict(self.init),
        }


def _recorded(source: Any) -> str | None:
    """Return a source as the config keeps it: of data in memory, which it does not hold, the name of the argument."""
    return source if source is None or isinstance(source, str) else f"{source}{IN_MEMORY}"


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
    """Check every field of a dataclass against its annotation and its range.

    >>> OptimisationOptions(batch_size=0)
    Traceback (most recent call last):
    chainrule.option_error.OptionError: batch_size: expected a whole number from 1 to 16777216, got 0
    """
    hints = field_types(type(options))
    for item in fields(options):
        value, hint, bounds = getattr(options, item.name), hints[item.name], item.metadata.get("range")
        if value is None and NoneType in get_args(hint):
            continue
        try:
            read_value(hint, value, item.name)
            fits = bounds is None or all(
                bounds[0] <= number <= bounds[1] for number in (value.values() if type(value) is dict else [value])
            )
        except ValueError:
            fits = isinstance(value, Path | DataSource)  # JSON has neither
        if not fits:
            got = one_line(f"{value!r:.80}")
            raise OptionError(item.name, f"expected {described(hint)}{_describe_range(bounds)}, got {got}")


def _describe_range(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return ""
    return f" >= {bounds[0]}" if bounds[1] == math.inf else f" from {bounds[0]} to {bounds[1]}"


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

    def is_given(self, explicit_flags: frozenset[str]) -> bool:
        return self.flag in explicit_flags or self.alias in explicit_flags


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
