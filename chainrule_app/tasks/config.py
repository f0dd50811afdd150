"""Content of `config.json` of any run, checked when it is read: every key known, every value of its type and range.

The dataclasses of options are the option groups of `chainrule train`: a default is written once, and checked once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial, reduce
from importlib import import_module
from inspect import signature
from itertools import chain
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import Group, Parameter

from chainrule.option_error import OptionError, option
from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule.typed_json import described, field_types, read_value
from chainrule_app.printing import parse_duration, public
from chainrule_app.readers.origin import DataSource

if TYPE_CHECKING:
    from torch.optim import Optimizer

FORMAT = 22
IN_MEMORY = " (in memory)"  # of a source that a config names but cannot hold
Options = TypeVar("Options")
SECTIONS = ("data", "model", "training", "computation", "facts", "settled", "init")

Steps = Annotated[int, Range(1, 1 << 53)]
Threads = Annotated[int, Range(1, 1 << 12)]
Number = Annotated[int, Range(1, 1 << 20)]  # of samples


class CheckedOptions:
    """Dataclass of options that checks itself: each field has its type, and numbers their `Range` in it."""

    def __post_init__(self) -> None:
        check_options(self)


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

    >>> ChosenComputation(threads=0)
    Traceback (most recent call last):
    chainrule.option_error.OptionError: threads: expected a whole number from 1 to 4096, got 0
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

    >>> range_of(Steps | None).low
    1
    """
    found = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Range)]
    return next(chain(found, filter(None, map(range_of, get_args(hint)))), None)


def _plain(hint: Any) -> Any:
    """Return an annotation without what `Annotated` adds to it."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    return reduce(or_, map(_plain, get_args(hint))) if get_origin(hint) in (UnionType, Union) else hint


Switch = Annotated[bool, Parameter(negative=())]
"""A flag without a value and without a --no- form."""


def flags_of(options: type, group: Group | None = None) -> Any:
    """Annotate an argument that has a flag for each field of a dataclass."""
    if not fields(options):  # the parser shows a group of no flags
        return Annotated[Any, Parameter(parse=False)]
    return Annotated[options, Parameter(name="*") if group is None else Parameter(name="*", group=group)]


class Model:
    """Model class of the library with the dataclass of its options; tests hold the two equal.

    Args:
        home: name of a model in `chainrule.models`, or a class.
        options: dataclass, whose fields are arguments of the constructor; `num_members` of them may be averaged.
        fixed: arguments that are no options.
        planned: options that are open until the run is planned.
    """

    def __init__(
        self,
        home: str | type,
        options: type[CheckedOptions],
        *,
        fixed: dict[str, Any] | None = None,
        planned: tuple[str, ...] = (),
    ):
        self.module, self.name = (
            ("chainrule.models", home) if isinstance(home, str) else (home.__module__, home.__name__)
        )
        self.options, self.fixed, self.planned = options, fixed or {}, planned

    @property
    def members(self) -> bool:
        """True if several models may be averaged."""
        return any(item.name == "num_members" for item in fields(cast(Any, self.options)))

    @cached_property
    def model_class(self) -> Any:
        return getattr(import_module(self.module), self.name)

    def build(self, options: Any, **data_arguments: Any) -> Any:
        """Build the model from options and data arguments; an unset planned option takes the constructor's default."""
        parameters = signature(self.model_class).parameters
        chosen = {
            name: value for name, value in asdict(options).items() if not (name in self.planned and value is None)
        }
        members = chosen.pop("num_members", 1)
        of_data = {name: value for name, value in data_arguments.items() if name in parameters}
        one = partial(self.model_class, **of_data, **self.fixed, **chosen)
        if members == 1:
            return one()
        from chainrule.models import Ensemble

        return Ensemble([one() for _ in range(members)])


def forgetting_decay(steps: float, learning_rate: float, *, least: float = 0.01, most: float = 0.5) -> float:
    """Return the weight decay with a time scale in steps, 1 / (steps · learning rate) (Wang and Aitchison 2024).

    >>> forgetting_decay(434, 0.008), forgetting_decay(4e6, 0.008), forgetting_decay(10, 0.008)
    (0.29, 0.01, 0.5)
    """
    return round(min(most, max(least, 1 / max(steps * learning_rate, 1e-9))), 2)


@dataclass
class Timed:
    """A network that was timed, as new, and its optimiser."""

    network: Any
    optimiser: "Optimizer"
    identity: tuple[Any, ...]  # `Task.network_identity` of its run
    steps_per_second: float
    elements: int  # of the batch that was timed

    @property
    def elements_per_second(self) -> float:
        return self.steps_per_second * self.elements


class Planned(NamedTuple):
    """The config of a planned run, and the network that was timed last for it."""

    config: RunConfig
    timed: Timed | None = None
