"""A run of a task before it is trained: its data, the options that follow from them, and its network."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from chainrule.files import write_json
from chainrule_app.batchwise import Answers, in_turn
from chainrule_app.heavy import torch
from chainrule_app.printing import counted, progress_bars, quoted
from chainrule_app.readers.sources import fingerprint
from chainrule_app.tasks.config import Planned, RunConfig, Timed
from chainrule_app.tasks.declaration import Declaration
from chainrule_app.tasks.options import OptimisationOptions
from chainrule_app.tasks.run_directory import (
    CONFIG,
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
    from chainrule.training import Batch, GradientProbe, TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule.training import Evaluation as Measurement
    from chainrule_app.tasks.preview import Observe, OnValidation


M = TypeVar("M", bound="TrainableModel")
Shard = tuple[int, int]


class Preparation(Declaration, ABC, Generic[M]):
    """Run of a task up to its first step: its directory, config, data, plan and network."""

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

    # Its likelihood.

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

    def timed(self, batches: "TrainingBatches", share: float = 1.0) -> Timed:
        """Build the network and time its training steps, for a share of the time that a budget has for measuring."""
        from chainrule.training import count_elements, make_optimiser

        batch, seconds = average_batch(batches), share * seconds_to_measure(self.config.duration.budget or 0.0)
        training = replace(self.training, device=str(self.device(self.training.device)))
        network = self.new_network(training.seed).to(training.device)
        optimiser = make_optimiser(network, 0.0, 0.0, training.optimiser)
        rate = step_rate(network, optimiser, batch, training, seconds)
        return Timed(network, optimiser, self.network_identity, rate, count_elements(batch))

    def trainable(self, timed: Timed | None) -> "tuple[M, Optimizer]":
        """Return the model of a new run and its optimiser: the network that was timed, if it is the run's."""
        from chainrule.training import make_optimiser

        if timed is not None and timed.identity == self.network_identity:
            return self.completed(timed.network), timed.optimiser
        training = self.training
        model = self.new_model(training.seed).to(self.device(training.device))
        return model, make_optimiser(model, training.learning_rate, training.weight_decay, training.optimiser)


_POOL = 16  # batches that `average_batch` compares


def average_batch(batches: "TrainingBatches") -> "Batch":
    """Return the batch of a run's first batches whose size is closest to their mean (the first of ties)."""
    from chainrule.state import leaves

    pool = map(batches.at, range(_POOL))
    sizes = [sum(part.numel() for part in leaves((batch.x, batch.context))) for batch in pool]
    average = mean(sizes)
    return batches.at(min(range(_POOL), key=lambda step: abs(sizes[step] - average)))


def seconds_to_measure(budget: float) -> float:
    """Return the seconds to measure speed: 2% of a budget up to 2 s; 1% up to 10 s for a long one.

    >>> [seconds_to_measure(budget) for budget in (30, 180, 600, 3600)]
    [0.6, 2.0, 6.0, 10.0]
    """
    return max(min(2.0, 0.02 * budget), min(10.0, 0.01 * budget))


def step_rate(
    model: "TrainableModel", optimiser: "Optimizer", batch: "Batch", training: OptimisationOptions, seconds: float
) -> float:
    """Measure training steps per second of a model, computed as in its training; a terminal shows that it goes on."""
    from chainrule.devices import choose_device
    from chainrule.training import Computation, steps_per_second

    device = choose_device(training.device)
    way, _ = Computation.choose(
        model, batch, device, threads=training.threads, precision=training.precision, backend=training.backend
    )
    weights = sum(weight.numel() for weight in model.parameters())
    with progress_bars() as begin:
        begin(None, f"timing training steps of {counted(weights, 'weight')}")
        return steps_per_second(model, optimiser, batch, way, seconds, device)
