"""A model that a task offers: it is built from its options, and its training steps are timed."""

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from chainrule.option_error import OptionError, option
from chainrule_app.tasks.config import CheckedOptions, OptimisationOptions, RunConfig
from chainrule_app.tasks.display import counted, progress_bars

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from chainrule import TrainableModel
    from chainrule.training import Batch, Findings, TrainingBatches
    from chainrule_app.tasks.preview import Observe

_POOL = 16  # batches that `average_batch` compares


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


def time_network(run: Any, batch: "Batch", seconds: float) -> Timed:
    """Build the network of a run, a `Task`, and time its training steps for about `seconds`."""
    from chainrule.training import count_elements, make_optimiser

    training = replace(run.training, device=str(run.device(run.training.device)))
    network = run.new_network(training.seed).to(training.device)
    optimiser = make_optimiser(network, 0.0, 0.0, training.optimiser)
    rate = step_rate(network, optimiser, batch, training, seconds)
    return Timed(network, optimiser, run.network_identity, rate, count_elements(batch))


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


def share_of(name: str, description: str) -> "Observe":
    """Observe the companion's weight in a `CalibratedMixture`."""

    def share(trained: Any) -> "Findings":
        from chainrule.training import Findings

        value = float(trained.share)
        return Findings({f"share_of_{name}": value}, f"{description}: {value:.0%} of the mean")

    return share


def shares_of(parts: dict[str, str]) -> "Observe":
    """Observe the weights of the parts beside the network in a `ForecastMixture`, described in its order."""

    def shares(trained: Any) -> "Findings":
        from chainrule.training import Findings

        weights = dict(zip(parts, trained.weights.tolist()[1:], strict=True))
        text = ", ".join(f"{parts[name]}: {weight:.0%}" for name, weight in weights.items())
        return Findings({f"share_of_{name}": weight for name, weight in weights.items()}, f"{text} of the mean")

    return shares


def positions_end(config: RunConfig) -> int | None:
    """Return the number of learned positions of a run; None for other positions."""
    learned = getattr(config.options, "position", None) == "learned"
    return config.options.context_length if learned else None


def check_positions(config: RunConfig) -> None:
    """Refuse sequences with more elements than learned positions.

    A stream has no end. A run that starts from other weights reads it in chunks, each from the first position on.
    """
    end = positions_end(config)
    if end is None:
        return
    endless = config.data.reading != "lines" and config.init is None
    name = "line_length" if config.data.reading == "lines" or endless else "chunk_length"
    longest = getattr(config.training, name)
    if endless or longest > end:
        got = "a stream, which has no end" if endless else f"{option(name)} {longest}"
        limit = f"{option(name)} of at most {end}"
        raise OptionError(
            "position",
            f"learned positions end after the {option('context_length')}, {end} symbols, got {got}",
            f"use a {limit}" if config.init else f"use rotary, or {option('reading', 'lines')} with a {limit}",
        )
