"""A task: one kind of data, the models of it, and all that a verb of the command line does with them."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from chainrule._app.tasks._source import Source as Source
from chainrule._app.tasks._source import run_word
from chainrule._app.tasks.config import Facts, Fingerprint, OptimisationOptions, RunConfig
from chainrule._app.tasks.display import flag
from chainrule._app.tasks.ladder import Ladder, choose_size, is_open, tell_size
from chainrule._app.tasks.ledger import Basis, LedgerEntry
from chainrule._app.tasks.model import Model, check_size
from chainrule._app.tasks.recipe import Recipe
from chainrule._app.tasks.run_directory import (
    CONFIG,
    METRICS,
    WEIGHTS,
    check_facts,
    read_config,
    refuse_taken,
    remove,
)

if TYPE_CHECKING:
    import torch

    from chainrule._app.results import Report
    from chainrule._base import TrainableModel
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import GradientProbe, TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule.training._validation import Observe, OnValidation

M = TypeVar("M", bound="TrainableModel")
Shard = tuple[int, int]


class Task(Recipe, ABC, Generic[M]):
    """A run of a task: its directory and config, and everything that can be done with them.

    A subclass is a task: it declares which options there are and implements what the verbs need. `train` needs the
    methods below; the other verbs need an ability (`chainrule._app.tasks.abilities`), and a verb is offered where the
    task has it. The name of a subclass is in `chainrule._app.tasks.TASKS`.

    Args:
        path: the run directory.
        config: the content of its config.json.

    Attributes:
        name: a key of `TASKS`.
        help: the first lines of `chainrule train --task NAME --help`.
        SOURCES: the files of data, by their names in the config; "source" is DATA.
        Data: a dataclass with the options of reading them.
        Facts: a dataclass with those results of preparing them that the config keeps.
        Training: a dataclass with the options of training.
        MODELS: the models by name, the usual one first.
        BUDGET: training time where nothing is said.
        APPLE: whether `auto` takes a GPU of Apple: for convolutions and attention, not for many small steps.
        NEEDS_FLOAT64: whether the model computes in float64, which a GPU of Apple does not have.
        FREE: options of training that may change on resume.
        LADDERS: sizes of the models that have several.
        USUAL_TRAINING: for a model, options of training in place of the usual ones; its learning rates by optimiser. A
            task whose `plan` does not call this class's decides by itself.
        NEEDS: optional packages that training needs.
        PREPARED: the file below the run directory that says that the data are prepared.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    SOURCES: ClassVar[dict[str, Source]]
    Data: ClassVar[type]
    Facts: ClassVar[type] = Facts
    Training: ClassVar[type[OptimisationOptions]] = OptimisationOptions
    MODELS: ClassVar[dict[str, Model]]
    BUDGET: ClassVar[str] = "3m"
    APPLE: ClassVar[bool] = False
    NEEDS_FLOAT64: ClassVar[bool] = False
    FREE: ClassVar[frozenset[str]] = frozenset({"patience", "device", "track", "samples"})
    LADDERS: ClassVar[dict[str, Ladder]] = {}
    USUAL_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {}
    NEEDS: ClassVar[tuple[str, ...]] = ()
    PREPARED: ClassVar[str] = ""

    def __init__(self, path: Path, config: RunConfig):
        self.path = path
        self.config = config

    @property
    def data(self) -> Any:
        """Options of reading, a `Data`."""
        return self.config.data

    @property
    def facts(self) -> Any:
        """Results of preparing the data, `Facts`."""
        return self.config.facts

    @property
    def training(self) -> Any:
        """Options of training, a `Training`."""
        return self.config.training

    # The data.

    @classmethod
    def run_name(cls, asked: RunConfig) -> str:
        """The name of the run directory where the user gives none."""
        source = asked.sources["source"]
        data = run_word(source).partition(".")[0] if source is not None else cls.name
        return f"{data}-{asked.model}"

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        """Raise ValueError for a command line that cannot begin a run; `given` flags are typed."""
        for name, source in cls.SOURCES.items():
            if source.needed and asked.sources[name] is None:
                raise ValueError(f"{source.flag}: expected {source.needed} to train on, got none")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ValueError for options that do not go together."""

    @classmethod
    def settle(cls, asked: RunConfig) -> RunConfig:
        """The config of a new run, with the options of reading decided; called before the data are prepared."""
        return asked

    @abstractmethod
    def prepare(self, old: Self | None = None) -> dict[str, Any]:
        """Read the data, write what training needs into the directory, return the `Facts` by name, and others.

        Args:
            old: a run whose vocabulary or schema is taken: the new one starts from its weights.

        Raises:
            ValueError, OSError: the data cannot be read or trained on, or do not fit the old run.
        """

    def prepare_data(self) -> dict[str, Any]:
        """`prepare`, with the vocabulary or schema of the run whose weights this one starts from, if there is one."""
        init = self.config.init
        return self.prepare(None if init is None else type(self).open(init.run))

    def options_in_weights(self) -> dict[str, Any]:
        """Options of training that decide what the weights are of, such as counts averaged with a network."""
        return {}

    def plan(self, given: frozenset[str]) -> RunConfig:
        """The config of a new run, its data prepared, with what the user left open decided; `given` flags are typed."""
        usual = self.USUAL_TRAINING.get(self.config.model, {})
        usual = {name: value for name, value in usual.items() if flag(name) not in given}
        rates = usual.pop("learning_rate", {})
        training = replace(self.training, **usual)
        training = replace(training, learning_rate=rates.get(training.optimiser, training.learning_rate))
        config, ladder = replace(self.config, training=training), self.ladder
        if ladder is None or not is_open(ladder, config, given):
            return config
        run = type(self)(self.path, config)
        return choose_size(run, ladder, run.batches((0, 1))[0])

    @property
    def ladder(self) -> Ladder | None:
        """The sizes of the run's model; None if it has only one."""
        return self.LADDERS.get(self.config.model)

    def choice(self) -> str:
        """The line that says what `plan` decided, and why."""
        assert self.ladder is not None
        return tell_size(self.config, self.ladder, self.MODELS[self.config.model].options())

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        """The fields of the `Fingerprint` of a source."""
        from chainrule.data._text import fingerprint

        return fingerprint(path)

    def is_prepared(self) -> bool:
        """Whether the data that `prepare` wrote are there; if not, a resumed run prepares them again."""
        return (self.path / self.PREPARED).is_file()

    # The model and its training.

    @classmethod
    def device(cls, asked: str) -> "torch.device":
        """The device called `asked`; the CPU in place of mps for a task that needs float64."""
        from chainrule.training._parallel import choose_device

        chosen = choose_device(asked, apple=cls.APPLE)
        if chosen.type == "mps" and cls.NEEDS_FLOAT64:
            print(f"mps has no float64, which a {cls.name} needs: computing on the CPU", file=sys.stderr)
            return choose_device("cpu")
        return chosen

    @abstractmethod
    def build(self) -> M:
        """The model that config and data describe, its weights drawn by torch's own generator."""

    def built(self, **of_data: Any) -> Any:
        """A new model with the options of the run and newly drawn weights; `of_data` are its other arguments."""
        return self.MODELS[self.config.model].build(self.config.options, **of_data)

    def _network(self) -> M:
        """The model as the options describe it, without what `build` reads from files; on the meta device, too."""
        return self.build()

    def check_size(self, weights: Path | None, *, confirm: str = "") -> int:
        """Refuse options of a larger model than there are weights of; see `chainrule._app.tasks.model.check_size`."""
        return check_size(self._network, self.path / CONFIG, weights, least=self.fewest_weights(), confirm=confirm)

    def fewest_weights(self) -> int:
        """A number of weights that the model has at least, where building it takes memory on the meta device too."""
        return 0

    @abstractmethod
    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        """The training batches of this process, and a function that makes the held-out ones."""

    @abstractmethod
    def introduce(self) -> Iterable[str]:
        """Lines that describe the data."""

    @abstractmethod
    def best(self, found: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        """Task-specific metrics of the best validation, and a line about them.

        Args:
            found: the likelihood.
            value: of the metric; None where the likelihood decides which weights are kept.
            rows: held-out rows that the metric is of.
        """

    @abstractmethod
    def next_steps(self) -> Sequence[str]:
        """Commands to try after training, the usual one first."""

    def on_validation(self) -> "OnValidation | None":
        """A function that shows, at each validation, what the model can do."""
        return None

    @property
    def metric_name(self) -> str:
        """The metric that decides which weights are kept, as metrics.jsonl names it; empty for the likelihood."""
        return ""

    def validation_metric(self) -> "ValidationMetric | None":
        """That metric, where there is one."""
        return None

    def observe(self) -> "Observe | None":
        """A function that finds further figures of the model at each validation."""
        return None

    def watch(self) -> "GradientProbe | None":
        """A function that looks at the gradients during training."""
        return None

    @abstractmethod
    def describe(self, about: dict[str, Any]) -> dict[str, str]:
        """The rows of `chainrule info` about the data; a row without a name is lines below the others.

        Args:
            about: what is told of every run: model, data, facts, training; may be extended for JSON.
        """

    def lacking(self) -> tuple[type, ...]:
        """Abilities of the task that the model of this run lacks."""
        return ()

    def report(self) -> "Report":
        """A page about the training of the run: learning curves, samples, data, options."""
        from chainrule._app.tasks._training_page import report_training

        return report_training(self)

    # Its likelihood.

    @property
    def basis(self) -> Basis:
        """The unit of the likelihood, and how it is measured."""
        return Basis("element")

    def held_out_sources(self) -> dict[str, Any]:
        """All that decides which data are held out: equal for runs that are validated on the same."""
        named = {name: getattr(self.facts, name, None) for name in self.SOURCES}
        digests = {name: found.sha256 for name, found in named.items() if isinstance(found, Fingerprint)}
        if apart := {name: digest for name, digest in digests.items() if name.startswith("validation")}:
            return apart
        share = getattr(self.config.data, "validation_fraction", None)
        return digests | {"share": share, "seed": self.config.training.seed}

    def held_out(self) -> LedgerEntry | None:
        """The likelihood of held-out data at the best validation; None before the first."""
        kept = [record for record in self.metrics("validation") if record.get("best")]
        if not kept:
            return None
        nats, elements = kept[-1]["nats_per_element"], kept[-1].get("elements", 0)
        if elements < 1:  # not as training writes it: nothing is said of the likelihood
            return None
        data = sha256(dumps(self.held_out_sources(), sort_keys=True).encode()).hexdigest()
        return LedgerEntry(self.basis, nats * elements, elements, data)

    def seconds_trained(self) -> float | None:
        """Wall-clock seconds of training up to the last validation; None where no clock was written down."""
        from chainrule.training._records import TIMINGS, read_elapsed

        return read_elapsed(self.path / TIMINGS)

    # The run directory.

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run of this task; FileNotFoundError or ValueError where there is none that can be read."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such run; `chainrule train DATA --out {path}` makes one")
        if not (path / CONFIG).is_file():
            raise ValueError(f"{path}: not a run: expected a directory with {CONFIG}, as `chainrule train` writes it")
        config = read_config(path / CONFIG, lambda content: RunConfig.from_json(content, cls))
        facts = config.to_json(cls.name)["facts"] or {}
        check_facts(path, {name: facts[name] for name in facts.keys() - cls.SOURCES}, cls.PREPARED)
        return cls(path, config)

    @classmethod
    def create(cls, path: str | Path, config: RunConfig, *, overwrite: bool = False) -> Self:
        """Make a directory for a new run and write its config.

        Raises:
            FileExistsError: something is there already; with `overwrite`, something that is no run.
            ValueError: the options do not go together.
        """
        cls.check_config(config)
        path = Path(path)
        refuse_taken(path, overwrite=overwrite)
        remove(path)
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, config)
        run.write_config()
        return run

    def write_config(self) -> None:
        """Write config.json, all or nothing."""
        from chainrule.data._atomic import write_json

        write_json(self.path / CONFIG, self.config.to_json(self.name))

    def with_options(self, **options: Any) -> Self:
        """The same run with other options of the model."""
        return type(self)(self.path, replace(self.config, options=replace(self.config.options, **options)))

    def new_model(self, seed: int) -> M:
        """The model before training, its weights drawn from `seed`; the caller's random state is left alone."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build()

    def model(self, device: "str | torch.device" = "cpu") -> M:
        """The trained model, best validation, in eval mode.

        Args:
            device: auto, cpu, cuda, cuda:N or mps.

        Raises:
            FileNotFoundError: there are no weights yet.
            ValueError: the weights are truncated, changed, or those of another model.
        """

        from chainrule.training import load_weights

        chosen = self.device(device) if isinstance(device, str) else device
        weights = self.path / WEIGHTS
        if not weights.is_file():
            raise FileNotFoundError(
                f"{weights}: no weights yet; `chainrule train --resume --out {self.path}` continues the training"
            )
        self.check_size(weights)
        model = self._unfilled()
        load_weights(weights, model)
        return model.to(chosen).eval()

    def _unfilled(self) -> M:
        """The model with no weights in particular, as the file has them all; what is in no file is made with it."""
        return self.new_model(0)

    def metrics(self, event: str = "") -> list[dict[str, Any]]:
        """The records of metrics.jsonl, of one event if it is named; a last line cut short by a crash is left out."""
        from chainrule.training._records import read_metrics

        path = self.path / METRICS
        return list(read_metrics(path, event)) if path.is_file() else []
