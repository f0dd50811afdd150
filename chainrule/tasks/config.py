"""Content of `config.json` of any run, checked when it is read: every key known, every value of its type and range.

The dataclasses of options are the option groups of `chainrule train`: a default is written once, and checked once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from chainrule.tasks.display import flags_of

if TYPE_CHECKING:
    from chainrule.tasks.task import Task

FORMAT = 14

Options = TypeVar("Options")


MOST_SEED = (1 << 63) - 1


def within(default: Any, low: float, high: float = math.inf) -> Any:
    return field(default=default, metadata={"range": (low, high)})


def options_class(name: str, options: Iterable[tuple[str, Any, Any]], base: type = object) -> type:
    """A frozen dataclass made from (name, type, `dataclasses.field`) of each option."""
    made = make_dataclass(name, list(options), bases=() if base is object else (base,), frozen=True)
    made.__module__ = __name__  # dataclasses says "types", which the parser takes for the standard library
    return made


def with_defaults(options: type[Options], **defaults: Any) -> type[Options]:
    """A dataclass of the same options, some of them with other defaults.

    >>> with_defaults(OptimisationOptions, batch_size=7)().batch_size
    7
    """
    found = {item.name: item for item in fields(cast(Any, options))}
    made = [
        (name, found[name].type, field(default=value, metadata=found[name].metadata))
        for name, value in defaults.items()
    ]
    return options_class(options.__name__, made, options)


class CheckedOptions:
    """A dataclass of options that checks itself when it is made; its fields have their ranges from `within`."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class SplitOptions(CheckedOptions):
    """Options of reading data of which a part is held out."""

    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the data that is held out where there is no --validation."""


@dataclass(frozen=True)
class Duration(CheckedOptions):
    """How long training lasts: one of the three, or none for the default of `chainrule.training.TrainingOptions`."""

    steps: int | None = within(None, 1, 1 << 53)
    epochs: float | None = within(None, 1e-9, 1e9)
    budget: float | None = within(None, 1e-3, 1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name, value in asdict(self).items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: expected one of --budget, --steps and --epochs, got {' and '.join(given)}")


@dataclass(frozen=True)
class OptimisationOptions(CheckedOptions):
    """The options of `chainrule.training.TrainingOptions` that every task has, except how long it lasts.

    A task with other defaults has `with_defaults` of them, one with more options a subclass.
    """

    batch_size: int = within(32, 1, 1 << 24)
    """Rows of a batch."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon: orthogonal steps for the matrices of layers, AdamW for the rest."""
    learning_rate: float = within(6e-3, 0.0, 1e3)
    """Peak learning rate."""
    weight_decay: float | None = within(None, 0.0, 1e3)  # a float in every run that trains
    """Decoupled weight decay of matrices; where not given 0.01, or what a rule of the task finds for the data."""
    warmup: float = within(0.03, 0.0, 1.0)
    """Share of the run in which the learning rate rises."""
    clip_norm: float | None = within(1.0, 0.0, 1e9)
    """Largest global norm of the gradient."""
    validate_every: int | None = within(None, 1, 1 << 53)
    """Steps between validations; about ten over the run where not given."""
    patience: int | None = within(None, 1, 1 << 53)
    """Stop after so many validations without improvement; never where not given."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto takes bfloat16 where the device computes it and it is faster."""
    threads: int | None = within(None, 1, 1 << 12)
    """Threads of the processor; the fastest number where not given."""
    backend: Literal["auto", "vendor", "bptt"] = "auto"
    """Kernel of recurrent layers: a vendor's, or steps written out; auto takes the faster."""
    seed: int = within(0, 0, MOST_SEED)
    """The same seed gives the same run on the same machine."""
    device: str = "auto"
    """Where to compute: auto, cpu or cuda."""
    tensorboard: bool = False
    """Write TensorBoard events too."""


@dataclass(frozen=True)
class SearchOptions(CheckedOptions):
    """Options of a beam search."""

    beam: int = within(5, 1)
    """Prefixes kept alive by the search; 1 is greedy."""
    length_penalty: float = within(1.0, 0.0, 1e9)
    """α of the score log p / length^α by which answers are ranked."""


@dataclass(frozen=True)
class NBestOptions(SearchOptions):
    """Options of a beam search for several answers."""

    n_best: int = within(1, 1)
    """Answers to each input, the best first; at most as many as --beam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise ValueError(f"n_best: expected 1 to --beam, {self.beam}, got {self.n_best}")


@dataclass(frozen=True)
class ChosenComputation(CheckedOptions):
    """How training steps are computed, as it was found fastest when the run began; a resumed run computes the same."""

    threads: int = within(1, 1, 1 << 12)
    precision: Literal["float32", "bfloat16"] = "float32"
    backend: Literal["auto", "vendor", "bptt"] = "auto"
    elements_per_second: dict[str, float] = field(default_factory=dict, metadata={"range": (0.0, math.inf)})


@dataclass(frozen=True)
class RunConfig:
    """All of `config.json`.

    Args:
        sources: the files of the data as the user named them, by the names in `Task.SOURCES`; None where absent.
        data: how they are read.
        facts: results of preparing the data: the fingerprint of each source (name, size, SHA-256), used to identify
            the data on resume; counts; other facts that the task needs.
        model: its name, one of `Task.MODELS`.
        options: the options of the model.
        duration: how long training lasts.
        training: how it goes.
        computation: how its steps are computed; None before the run begins.
    """

    sources: dict[str, str | None]
    data: Any
    facts: dict[str, Any]
    model: str
    options: Any
    duration: Duration
    training: Any
    computation: ChosenComputation | None = None

    def chosen_flags(self) -> str:
        """The flags that name every option that was settled for the user, with its value; empty where none was.

        Epochs are left out of a run that was given another duration since.
        """
        values = asdict(self.options) | asdict(self.training) | asdict(self.duration)
        settled = {name: values[name] for name in self.facts.get("chosen", {}).get("options", ())}
        return flags_of({name: value for name, value in settled.items() if value is not None or name != "epochs"})

    def to_json(self, task: str) -> dict[str, Any]:
        """The mapping that is written to disk."""
        from chainrule import __version__

        return {
            "format": FORMAT,
            "chainrule": __version__,
            "task": task,
            "data": {"sources": self.sources, **asdict(self.data)},
            "facts": self.facts,
            "model": {"name": self.model, "options": asdict(self.options)},
            "training": {**asdict(self.duration), **asdict(self.training)},
            "computation": None if self.computation is None else asdict(self.computation),
        }

    @classmethod
    def from_json(cls, content: Any, task: "type[Task[Any]]") -> "RunConfig":
        """Check and read what `to_json` made, for a task.

        Raises:
            ValueError: the content is of another format or task, or has an unknown key or a value that cannot be.
        """
        name = task_in(content)
        if name != task.name:
            raise ValueError(f"task: expected {task.name!r}, got {name!r}")
        sections = {"format", "chainrule", "task", "data", "facts", "model", "training", "computation"}
        check_keys("config", content, sections)
        model, data = read_object(content, "model"), dict(read_object(content, "data"))
        check_keys("model", model, {"name", "options"})
        if not isinstance(model["name"], str) or model["name"] not in task.MODELS:
            raise ValueError(f"model.name: expected one of {', '.join(task.MODELS)}, got {model['name']!r:.80}")
        training = dict(read_object(content, "training"))
        duration = {item.name: training.pop(item.name) for item in fields(Duration) if item.name in training}
        facts = read_object(content, "facts")
        task.check_facts(facts)
        config = cls(
            sources=_read_sources(data, task),
            data=read_options(task.Data, data, "data"),
            facts=facts,
            model=model["name"],
            options=read_options(task.MODELS[model["name"]].options, read_object(model, "options"), "model.options"),
            duration=read_options(Duration, duration, "training"),
            training=read_options(task.Training, training, "training"),
            computation=None
            if content["computation"] is None
            else read_options(ChosenComputation, read_object(content, "computation"), "computation"),
        )
        planned = task.MODELS[config.model].planned  # by a rule that need not measure
        _check_chosen(config, _UNMEASURED if planned else _MEASURED)
        task.check_config(config)
        return config


_MEASURED: dict[str, Any] = {"options": list, "passes": float, "elements_per_second": float}
_UNMEASURED: dict[str, Any] = {"options": list, "passes": float | None, "elements_per_second": float | None}


def _check_chosen(config: RunConfig, kinds: Mapping[str, Any]) -> None:
    """Check the record of options that were settled for the user, of a run that has one."""
    if "chosen" not in config.facts:
        return
    check_entries("facts", config.facts, "chosen", kinds)
    known = [item.name for section in (config.options, config.training, config.duration) for item in fields(section)]
    if unknown := [name for name in config.facts["chosen"]["options"] if name not in known]:
        raise ValueError(f"facts.chosen.options: expected names of options, got {unknown[0]!r:.80}")


def format_in(content: Any) -> int:
    """The format of a run.

    Raises:
        ValueError: it is no run.
    """
    if not isinstance(content, dict) or "format" not in content or "chainrule" not in content:
        raise ValueError("expected an object with the keys format and chainrule: this is no chainrule run")
    if type(content["format"]) is not int or content["format"] < 1:
        raise ValueError(f"format: expected {FORMAT}, got {content['format']!r}")
    return content["format"]


def task_in(content: Any) -> str:
    """The task that a run names, in a format that this version reads.

    Raises:
        ValueError: it is no run, or of another format.
    """
    if format_in(content) != FORMAT:
        other = "a newer" if content["format"] > FORMAT else "the older"
        raise ValueError(
            f"format: this version reads {FORMAT}, the run has {content['format']} "
            f"(written by chainrule {content['chainrule']}): install {other} chainrule, or train again"
        )
    if not isinstance(content.get("task"), str):
        raise ValueError(f"task: expected the name of a task, got {content.get('task')!r:.80}")
    return content["task"]


def _read_sources(data: dict[str, Any], task: "type[Task[Any]]") -> dict[str, str | None]:
    sources = data.pop("sources", None)
    if not isinstance(sources, dict):
        raise ValueError(f"data.sources: expected paths by name, got {sources!r:.80}")
    check_keys("data.sources", sources, set(task.SOURCES))
    for name, path in sources.items():
        if path is not None and not isinstance(path, str):
            raise ValueError(f"data.sources.{name}: expected a path or null, got {path!r:.80}")
    return sources


def read_options(kind: type[Options], content: dict[str, Any], where: str) -> Options:
    """Make a dataclass of options from an untrusted mapping.

    Raises:
        ValueError: a key is unknown or missing, a value is of another type or out of range.
    """
    names = {item.name for item in fields(cast(Any, kind))}
    check_keys(where, content, names)
    try:
        return kind(**content)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def check_options(options: Any) -> None:
    """Check every field of a dataclass against its annotation and the range in its metadata.

    >>> OptimisationOptions(batch_size=0)
    Traceback (most recent call last):
    ValueError: batch_size: expected a whole number from 1 to 16777216, got 0
    """
    hints = get_type_hints(type(options))
    for item in fields(options):
        value = getattr(options, item.name)
        if not _fits(value, hints[item.name], item.metadata.get("range")):
            expected = _describe(hints[item.name], item.metadata.get("range"))
            raise ValueError(f"{item.name}: expected {expected}, got {value!r}")


def _fits(value: Any, hint: Any, bounds: tuple[float, float] | None) -> bool:
    if get_origin(hint) in (UnionType, Union):
        return any(_fits(value, member, bounds) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is dict:
        return type(value) is dict and all(
            type(name) is str and _fits(entry, get_args(hint)[1], bounds) for name, entry in value.items()
        )
    if hint is NoneType:
        return value is None
    if hint is float and type(value) is int:
        value = float(value) if abs(value) < 1 << 53 else math.inf
    if type(value) is not hint if hint in _NAMES else not isinstance(value, hint):  # exactly: True is no number
        return False
    return bounds is None or bounds[0] <= value <= bounds[1]


_NAMES = {NoneType: "nothing", int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _describe(hint: Any, bounds: tuple[float, float] | None) -> str:
    if get_origin(hint) in (UnionType, Union):
        return " or ".join(_describe(member, bounds) for member in get_args(hint) if member is not NoneType)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is dict:
        return f"by name, {_describe(get_args(hint)[1], bounds)}"
    if bounds is None or hint not in (int, float):
        return _NAMES.get(hint, "a path")
    return f"{_NAMES[hint]} {f'>= {bounds[0]}' if bounds[1] == math.inf else f'from {bounds[0]} to {bounds[1]}'}"


def check_keys(where: str, content: dict[str, Any], expected: set[str]) -> None:
    if unknown := sorted(map(str, content.keys() - expected)):
        raise ValueError(f"{where}: unknown key {unknown[0]!r} (known: {', '.join(sorted(expected))})")
    if missing := sorted(expected - content.keys()):
        raise ValueError(f"{where}: the key {missing[0]!r} is missing")


def read_object(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content[key]
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, got {value!r}")
    return value


FINGERPRINT = {"name": str, "bytes": int, "sha256": str}


def check_entries(where: str, content: dict[str, Any], key: str, kinds: Mapping[str, Any]) -> None:
    """Check that `content[key]` is an object with exactly the entries of `kinds`, each of its type.

    Raises:
        ValueError: it is not.
    """
    check_keys(f"{where}.{key}", read_object(content, key), set(kinds))
    for name, kind in kinds.items():
        if not _fits(content[key][name], kind, None):
            raise ValueError(f"{where}.{key}.{name}: expected {_describe(kind, None)}, got {content[key][name]!r:.80}")
