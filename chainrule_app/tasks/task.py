"""A task: one kind of data, the models of it, and all that a verb of the command line does with them."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from chainrule.files import write_json
from chainrule.option_error import MissingError
from chainrule.training import read_metrics
from chainrule_app.batchwise import Answers, in_turn
from chainrule_app.heavy import modes, torch
from chainrule_app.readers.text import fingerprint
from chainrule_app.recorded import TIMINGS, read_elapsed
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.capabilities import Checks
from chainrule_app.tasks.config import Fingerprint, RunConfig
from chainrule_app.tasks.config import Source as Source
from chainrule_app.tasks.declaration import Declaration
from chainrule_app.tasks.display import quoted
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord
from chainrule_app.tasks.model import Planned, Timed
from chainrule_app.tasks.model_size import check_size
from chainrule_app.tasks.run_directory import (
    CONFIG,
    METRICS,
    WEIGHTS,
    ChangedRunError,
    check_facts,
    identity,
    local_run,
    read_config,
    refuse_taken,
    remove,
)
from chainrule_app.tasks.size_schedule import SizeSchedule, choose_size, describe_size, is_open

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from chainrule import TrainableModel
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import GradientProbe, TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule_app.results import Report
    from chainrule_app.tasks.preview import Observe, OnValidation


M = TypeVar("M", bound="TrainableModel")
Shard = tuple[int, int]


class Task(Declaration, Checks, ABC, Generic[M]):
    """Run of a task: its directory, config and everything that verbs do with them."""

    def __init__(self, path: Path, config: RunConfig):
        self.path = path
        self.config = config
        self.identity = ""  # of the files that `open` found, see `run_directory.identity`
        self.loaded: M | None = None  # the model where `Run` keeps it; each call computes with a copy
        self.answered: Answers = in_turn  # how the batches of an answer are computed
        self.computed: dict[str, Any] = {}  # what calls compute once from the loaded model

    @property
    def has_code(self) -> bool:
        return self.config.model in self.CODED

    @property
    def data(self) -> Any:
        return self.config.data

    @property
    def facts(self) -> Any:
        return self.config.facts

    @property
    def training(self) -> Any:
        return self.config.training

    # The data.

    @property
    def source(self) -> Any:
        """Return the data to train on: a path as the user named it, or data in memory."""
        return self.config.sources["source"]

    @classmethod
    def resolve_reading(cls, request: RunConfig) -> RunConfig:
        """Resolve the options for reading the data, before they are prepared."""
        return request

    @abstractmethod
    def prepare(self, old: Self | None = None) -> dict[str, Any]:
        """Read the data, write what training needs into the directory, and return the `Facts` by name.

        The vocabulary or schema comes from `old`, if its weights are the initial ones.
        """

    def prepare_data(self) -> dict[str, Any]:
        """Prepare the data, with the vocabulary or schema of the run that provides initial weights, if any."""
        init = self.config.init
        return self.prepare(None if init is None else type(self).open(init.run))

    def options_in_weights(self) -> dict[str, Any]:
        """Return the training options that decide what the weights belong to, such as averaged counts."""
        return {}

    def plan(self, given: frozenset[str]) -> Planned:
        """Resolve the options that the user left open, after the data are prepared."""
        defaults = self.DEFAULT_TRAINING.get(self.config.model, {})
        defaults = {name: value for name, value in defaults.items() if name not in given}
        if self.training.lora_rank is not None:
            defaults.pop("optimiser", None)
        rates = defaults.pop("learning_rate", {})
        training = replace(self.training, **defaults)
        training = replace(training, learning_rate=rates.get(training.optimiser, training.learning_rate))
        config, schedule = replace(self.config, training=training), self.schedule
        if schedule is None or not is_open(schedule, config, given):
            return Planned(config)
        return choose_size(type(self)(self.path, config), schedule)

    @property
    def schedule(self) -> SizeSchedule | None:
        """Return the sizes of the run's model; None if it has one."""
        return self.SIZE_SCHEDULES.get(self.config.model)

    def choice(self) -> str:
        """Describe what `plan` chose, and why."""
        assert self.schedule is not None
        return describe_size(self.config, self.schedule, self.MODELS[self.config.model].options())

    @classmethod
    def fingerprint(cls, path: Any) -> dict[str, Any]:
        """Identify a source of data; the built-in text has no path."""
        return fingerprint(path)

    def is_prepared(self) -> bool:
        """Tell if the prepared data exist; if not, a resumed run prepares them again."""
        return (self.path / self.PREPARED).is_file()

    # The model and its training.

    @classmethod
    def device(cls, name: str) -> "torch.device":
        """Resolve a device name; a task that needs float64 computes on the CPU instead of mps."""
        from chainrule.devices import choose_device

        chosen = choose_device(name, apple=cls.APPLE)
        if chosen.type == "mps" and cls.NEEDS_FLOAT64:
            print(f"mps has no float64, which the task {cls.name} needs: computing on the CPU", file=sys.stderr)
            return choose_device("cpu")
        return chosen

    @abstractmethod
    def build(self) -> M:
        """Build the network from config and data; torch's global generator draws its weights."""

    def completed(self, network: M) -> M:
        """Return the model of a network: with what is fitted to the data without gradients, if the run has it."""
        return network

    def built(self, **of_data: Any) -> Any:
        """Build a new model with the run's options and data arguments."""
        return self.MODELS[self.config.model].build(self.config.options, **of_data)

    def _network(self) -> M:
        """Build the network without what `build` reads from files; works on the meta device."""
        return self.build()

    def check_size(self, weights: Path | None, *, confirm: str = "") -> int:
        """Count the weights; refuse a larger model than the weights file or memory allows."""
        least, shard = self.fewest_weights(), self.training.shard
        return check_size(self._network, self.path / CONFIG, weights, least=least, confirm=confirm, shard=shard)

    def fewest_weights(self) -> int:
        """Return a lower bound of the weights, if building takes memory even on the meta device."""
        return 0

    @property
    def recipe(self) -> str:
        """Return the model in words, such as `2 × LSTM 256 + 12-gram counts`."""
        members = getattr(self.config.options, "num_members", None) or 1
        networks = f"{members} × {self.architecture}" if members > 1 else self.architecture
        return " + ".join([networks, *self.added_parts()])

    @property
    def architecture(self) -> str:
        """Name one network of the run; with its size if several may be averaged."""
        name, options = self.config.model, self.config.options
        if not self.MODELS[name].members:
            return name
        label = name.upper() if "cell" in self.MODELS[name].fixed else name
        layers = f"{options.num_layers}-layer " if options.num_layers > 1 else ""
        return f"{layers}{label} {getattr(options, 'hidden_size', 0) or options.model_size}"

    def added_parts(self) -> Sequence[str]:
        """List the parts added to the networks; `--plain` omits them."""
        return ()

    @abstractmethod
    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        """Return the training batches of this process, and a function that makes the held-out ones."""

    @abstractmethod
    def introduce(self) -> Iterable[str]:
        """Describe the data line by line."""

    @abstractmethod
    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        """Return the task's metrics of the best validation, and a line about them."""

    def next_steps(self) -> Sequence[str]:
        """List commands to try after training, the best first."""
        return [command.format(run=quoted(self.path)) for command in self.NEXT]

    def on_validation(self) -> "OnValidation | None":
        """Return a function that shows samples at each validation."""
        return None

    @property
    def metric_name(self) -> str:
        """Name the metric in metrics.jsonl that selects the best weights; empty for the likelihood."""
        return ""

    def validation_metric(self) -> "ValidationMetric | None":
        return None

    def observe(self) -> "Observe | None":
        """Return a function that measures extra metrics at each validation."""
        return None

    def watch(self) -> "GradientProbe | None":
        """Return a gradient probe for training."""
        return None

    def baseline(self, model: Any, seconds: float) -> Baseline | None:
        """Compare the trained model with the obvious alternative on held-out data, in about so many seconds."""
        return None

    def more_facts(self) -> dict[str, Any]:
        """Return the facts that `chainrule info --json` adds to the config's."""
        return {}

    def lacking(self) -> tuple[str, ...]:
        """Return the methods of the task that this run's model lacks."""
        return ()

    def report(self) -> "Report":
        """Report on the training: learning curves, samples, data, options."""
        from chainrule_app.tasks.training_page import report_training

        return report_training(self)

    # Its likelihood.

    @property
    def basis(self) -> Basis:
        """Return the unit of the likelihood, and how it is measured."""
        return Basis("element")

    def held_out_sources(self) -> dict[str, Any]:
        """Return what decides the held-out data: equal for runs validated on the same data."""
        named = {name: getattr(self.facts, name, None) for name in self.SOURCES if name != "vectors"}
        digests = {name: source.sha256 for name, source in named.items() if isinstance(source, Fingerprint)}
        if apart := {name: digest for name, digest in digests.items() if name.startswith("validation")}:
            return apart
        share = getattr(self.config.data, "validation_fraction", None)
        return digests | {"share": share, "seed": self.config.training.seed}

    def held_out(self) -> LikelihoodRecord | None:
        """Return the held-out likelihood at the best validation; None before the first."""
        best_records = [record for record in self.metrics("validation") if record.get("best")]
        if not best_records:
            return None
        nats, elements = best_records[-1]["nats_per_element"], best_records[-1].get("elements", 0)
        if elements < 1:  # an edited file: the likelihood is unknown
            return None
        data = sha256(dumps(self.held_out_sources(), sort_keys=True).encode()).hexdigest()
        return LikelihoodRecord(self.basis, nats * elements, elements, data)

    def seconds_trained(self) -> float | None:
        """Return wall-clock seconds of training up to the last validation; None if none were recorded."""
        return read_elapsed(self.path / TIMINGS)

    # The run directory.

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run of this task; raises FileNotFoundError or ValueError."""
        path = local_run(path)
        found = identity(path)  # before all else: what is read later may be that of another training
        config = read_config(path, cls.config_from_json)
        facts = config.to_json(cls.name)["facts"] or {}
        check_facts(path, {name: facts[name] for name in facts.keys() - cls.SOURCES}, cls.PREPARED)
        run = cls(path, config)
        run.identity = found
        return run

    def check_unchanged(self) -> None:
        """Raise ChangedRunError if the run was trained again, or deleted, since it was opened."""
        if identity(self.path) != self.identity:
            raise ChangedRunError(self.path)

    @classmethod
    def create(cls, path: str | Path, config: RunConfig, *, overwrite: bool = False) -> Self:
        """Create a run directory and write its config."""
        cls.check_config(config)
        path = Path(path)
        refuse_taken(path, overwrite=overwrite)
        remove(path)
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, config)
        run.write_config()
        return run

    def write_config(self) -> None:
        write_json(self.path / CONFIG, self.config.to_json(self.name))

    def with_options(self, **options: Any) -> Self:
        """Return the same run with other model options."""
        return type(self)(self.path, replace(self.config, options=replace(self.config.options, **options)))

    def new_network(self, seed: int) -> M:
        """Build the network before training from `seed`, without touching the global random state."""
        from chainrule import modes

        with modes.own_draws(seed):
            return self.build()

    def new_model(self, seed: int) -> M:
        """Build the model before training."""
        return self.completed(self.new_network(seed))

    @property
    def network_identity(self) -> tuple[Any, ...]:
        """Return what decides on the network of a new run and on the kind of its optimiser."""
        return self.config.model, self.config.options, self.training.seed, self.training.optimiser

    def trainable(self, timed: Timed | None) -> "tuple[M, Optimizer]":
        """Return the model of a new run and its optimiser: the network that was timed, if it is the run's."""
        from chainrule.training import make_optimiser

        if timed is not None and timed.identity == self.network_identity:
            return self.completed(timed.network), timed.optimiser
        training = self.training
        model = self.new_model(training.seed).to(self.device(training.device))
        return model, make_optimiser(model, training.learning_rate, training.weight_decay, training.optimiser)

    def model(self, device: "str | torch.device" = "cpu") -> M:
        """Return the trained model with the best validation, in evaluation mode: a new one for each call."""
        chosen = self.device(device) if isinstance(device, str) else device
        model = self.load() if self.loaded is None else deepcopy(self.loaded)
        return model.to(chosen).eval()

    def fixed_model(self, device: "str | torch.device") -> M:
        """Return the trained model for calls that do not change it: the loaded one, or its one copy on a device."""
        chosen = self.device(device) if isinstance(device, str) else device
        if self.loaded is None:
            return self.model(chosen)
        if modes.device_of(self.loaded) == chosen:
            return self.loaded
        name = f"model on {chosen}"
        if name not in self.computed:
            self.computed[name] = self.model(chosen)
        copy: M = self.computed[name]
        return copy

    def load(self) -> M:
        """Load the trained model with the best validation."""
        from chainrule.training import load_weights

        weights = self.path / WEIGHTS
        if not weights.is_file():
            raise MissingError(
                f"{weights}",
                f"no weights yet; `chainrule train --resume --out {self.path}` continues the training",
            )
        self.check_size(weights)
        model = self._unfilled()
        load_weights(weights, model)
        return model

    def _unfilled(self) -> M:
        """Build an uninitialised model: every weight is read from the file."""
        return self.new_model(0)

    def metrics(self, event: str = "") -> list[dict[str, Any]]:
        """Read metrics.jsonl, optionally of one event; a truncated last line is dropped."""
        path = self.path / METRICS
        return list(read_metrics(path, event)) if path.is_file() else []
