"""What a task declares about itself, and the config of a run checked against it."""

from dataclasses import dataclass, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal

from chainrule.option_error import OptionError, option
from chainrule.typed_json import check_keys, read_fields, read_value
from chainrule_app.tasks.config import (
    SECTIONS,
    ChosenComputation,
    Duration,
    Facts,
    InitialWeights,
    Model,
    RunConfig,
    Settled,
    check_settled,
    task_in,
)
from chainrule_app.tasks.options import OptimisationOptions
from chainrule_app.tasks.size_schedule import SizeSchedule


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


class Declaration:
    """Data, options, models and defaults of a task."""

    name: ClassVar[str]
    help: ClassVar[str]  # first lines of chainrule train --task NAME --help
    SOURCES: ClassVar[dict[str, Source]]  # data files, by their names in the config; "source" is DATA
    Data: ClassVar[type]  # dataclass of the reading options
    Facts: ClassVar[type] = Facts  # dataclass of the facts about prepared data
    Training: ClassVar[type[OptimisationOptions]] = OptimisationOptions  # dataclass of the training options
    MODELS: ClassVar[dict[str, Model]]  # models by name, the default first
    BUDGET: ClassVar[str] = "3m"  # default training time
    APPLE: ClassVar[bool] = False  # auto uses Apple GPUs
    NEEDS_FLOAT64: ClassVar[bool] = False  # the model needs float64, which Apple GPUs lack
    FREE: ClassVar[frozenset[str]] = frozenset({"patience", "device", "track", "samples"})
    CODED: ClassVar[tuple[str, ...]] = ()  # models with a latent code
    SIZE_SCHEDULES: ClassVar[dict[str, SizeSchedule]] = {}  # sizes of models that have several
    DEFAULT_TRAINING: ClassVar[
        dict[str, dict[str, Any]]
    ] = {}  # training defaults by model; learning rates by optimiser
    NEEDS: ClassVar[tuple[str, ...]] = ()  # optional packages required for training
    PLANNED: ClassVar[tuple[str, ...]] = ()  # options of data and training that are open until the run is planned
    PLAIN: ClassVar[dict[str, Any]] = {}  # options that `--plain` sets
    WORDS: ClassVar[dict[str, str]] = {}  # words for models in the name of a run directory, if not theirs
    PREPARED: ClassVar[str] = ""  # file in the run directory that marks the data as prepared
    DEFAULT_NUMBER: ClassVar[int] = 1  # samples
    FILES: ClassVar[tuple[str, ...]] = ()  # file name endings of samples; empty for any
    verb: ClassVar[str] = ""  # name of the prediction verb, if it differs from the task's
    several: ClassVar[bool] = False  # predicts for several files
    plots: ClassVar[bool] = False  # draws its predictions
    continues: ClassVar[bool] = False  # predicts what follows its own data where none are passed
    NEXT: ClassVar[tuple[str, ...]] = ()  # commands to try after training, the best first; {run} is the run

    @classmethod
    def run_name(cls, request: RunConfig) -> str:
        """Name the run directory if the user does not."""
        source = request.sources["source"]
        data = run_word(source).partition(".")[0] if source is not None else cls.name
        return f"{data}-{cls.WORDS.get(request.model, request.model)}"

    @classmethod
    def plain(cls, request: RunConfig, given: frozenset[str]) -> tuple[RunConfig, frozenset[str]]:
        """Return the config of the named architecture alone, and the options that this decides."""
        sections, decided = {}, set(given)
        for section in ("data", "options", "training"):
            part = getattr(request, section)
            own = {name: value for name, value in cls.PLAIN.items() if hasattr(part, name)}
            for name, value in own.items():
                if name in given and getattr(part, name) != value:
                    raise OptionError(
                        name, f"{option('plain')} leaves this part of the model out", "drop one of the two"
                    )
            sections[section] = replace(part, **own)
            decided |= own.keys()
        return replace(request, **sections), frozenset(decided)

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        """Raise ValueError for a command line that cannot start a run."""
        for name, source in cls.SOURCES.items():
            if source.needed and request.sources[name] is None:
                raise OptionError(source.argument(name), f"expected {source.needed} to train on, got none")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ValueError for options that contradict each other."""

    @classmethod
    def config_from_json(cls, content: Any) -> RunConfig:
        """Check and read what `RunConfig.to_json` wrote."""
        name = task_in(content)
        if name != cls.name:
            raise OptionError("task", f"expected {cls.name!r}, got {name!r}")
        check_keys("config", content, {*SECTIONS, "format", "chainrule", "task"})
        model = read_fields({"name": Literal[tuple(cls.MODELS)], "options": dict}, content["model"], "model")
        data, training = (dict(read_value(dict, content[name], name)) for name in ("data", "training"))
        sources = read_fields(dict.fromkeys(cls.SOURCES, str | None), data.pop("sources", None), "data.sources")
        for name, source in cls.SOURCES.items():
            if source.needed and sources[name] is None:
                raise ValueError(f"data.sources.{name}: expected {source.needed}, got null")
        duration = {item.name: training.pop(item.name) for item in fields(Duration) if item.name in training}
        config = RunConfig(
            sources=sources,
            data=read_value(cls.Data, data, "data"),
            model=model["name"],
            options=read_value(cls.MODELS[model["name"]].options, model["options"], "model.options"),
            duration=read_value(Duration, duration, "training"),
            training=read_value(cls.Training, training, "training"),
            computation=read_value(ChosenComputation | None, content["computation"], "computation"),
            facts=read_value(cls.Facts, content["facts"], "facts"),
            settled=read_value(Settled | None, content["settled"], "settled"),
            init=read_value(InitialWeights | None, content["init"], "init"),
        )
        check_settled(config, timed=not cls.MODELS[config.model].planned)
        cls.check_config(config)
        if config.facts is not None:
            cls._check_resolved(config)
        return config

    @classmethod
    def _check_resolved(cls, config: RunConfig) -> None:
        """Raise ValueError for options that a prepared run left open."""
        sections = (
            (config.options, cls.MODELS[config.model].planned),
            (config.training, cls.PLANNED),
            (config.data, cls.PLANNED),
        )
        for section, names in sections:
            for name in names:
                if getattr(section, name, name) is None:
                    raise OptionError(name, "expected a value, got none")
