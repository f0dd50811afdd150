"""Choose the size of a task's default model: the largest that a budget trains well on this machine.

A task declares a `SizeSchedule`. If the user gives a budget and none of the size options, a new run times training
steps of the default size and then of smaller ones, and takes the first size that gets through enough of the data.
A network that was timed is as new afterwards, so the run trains it if the plan takes its options.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from chainrule_app.printing import counted, format_duration, format_passes
from chainrule_app.tasks.config import Duration, Planned, RunConfig, Settled, Timed, forgetting_decay

if TYPE_CHECKING:
    from chainrule.training import TrainingBatches

TRAINING_SHARE = 0.9  # of a budget goes into training steps
_VALIDATIONS, _VALIDATIONS_OF_SEVERAL = 25, 10  # of a run whose passes are limited: of one model, of several
_SPARE = 2.0  # budget ÷ time of the limited passes, at least: validations need some, and a machine may be busy later


@dataclass(frozen=True)
class SizeSchedule:
    """Model sizes from the default down, and the training that a size needs to pay off."""

    elements: str  # plural noun for the elements of the data
    smaller: tuple[dict[str, int], ...]  # sizes below the default one, larger first
    passes: float = math.inf
    steps: float = math.inf
    fewest_steps: float = 0.0  # minimum for small data, where many passes are few steps

    @property
    def names(self) -> list[str]:
        return list(self.smaller[0])

    def needed_steps(self, steps_per_epoch: int) -> float:
        """Return the steps that a size needs to pay off."""
        return max(min(self.steps, self.passes * steps_per_epoch), self.fewest_steps)


def first_that_fits(rate: Callable[[int], float], sizes: int, steps: float, budget: float) -> tuple[int, float]:
    """Return the first size that takes `steps` in a budget, else the last, and its steps per second."""
    for size in range(sizes):
        steps_per_second = rate(size)
        if TRAINING_SHARE * budget * steps_per_second >= steps:
            break
    return size, steps_per_second


def is_open(schedule: SizeSchedule, config: RunConfig, given: frozenset[str]) -> bool:
    """Tell if the size is to be chosen: there is a budget and no size option was set."""
    return config.duration.budget is not None and given.isdisjoint(schedule.names)


def choose_size(run: Any, schedule: SizeSchedule) -> Planned:
    """Choose the size of a new run, a `Task`, that suits its budget."""

    config, batches = run.config, run.batches((0, 1))[0]
    budget, steps_per_epoch = config.duration.budget, batches.steps_per_epoch
    sizes = [config.options, *(replace(config.options, **size) for size in schedule.smaller)]
    timed: Timed | None = None

    def rate(size: int) -> float:
        nonlocal timed
        timed = run.with_options(**asdict(sizes[size])).timed(batches, 1 / len(sizes))
        return timed.steps_per_second

    size, steps_per_second = first_that_fits(rate, len(sizes), schedule.needed_steps(steps_per_epoch), budget)
    passes = TRAINING_SHARE * budget * steps_per_second / steps_per_epoch
    assert timed is not None
    settled = Settled(schedule.names, passes, timed.elements_per_second)
    return Planned(replace(config, options=sizes[size], settled=settled), timed)


def expected_passes(config: RunConfig, steps_per_epoch: int) -> float | None:
    """Return the passes over the data of a new run; None for a budget that was not timed."""
    duration = config.duration
    if config.settled is not None:
        return config.settled.passes
    return duration.epochs if duration.steps is None else duration.steps / steps_per_epoch


def time_passes(run: Any, planned: Planned, batches: "TrainingBatches") -> tuple[Planned, float]:
    """Return the plan and the passes of a new run, a `Task`; a budget is timed if it was not before."""
    config, timed = planned
    budget = config.duration.budget
    if budget is not None and config.settled is None:
        timed = type(run)(run.path, config).timed(batches)
        passes = TRAINING_SHARE * budget * timed.steps_per_second / batches.steps_per_epoch
        config = replace(config, settled=Settled([], passes, timed.elements_per_second))
    passes_expected = expected_passes(config, batches.steps_per_epoch)
    assert passes_expected is not None
    return Planned(config, timed), passes_expected


def record_resolved(config: RunConfig, names: Sequence[str]) -> RunConfig:
    """Record further options as chosen, if the run was timed."""
    if config.settled is None:
        return config
    options = list(dict.fromkeys([*config.settled.options, *names]))
    return replace(config, settled=replace(config.settled, options=options))


def limit_passes(
    config: RunConfig,
    rate: float,
    batches: "TrainingBatches",
    most: float,
    *,
    elements: int,
    options: Sequence[str] = (),
    most_members: int = 1,
    spare: float = _SPARE,
) -> RunConfig:
    """Limit the passes of a new run, so that it does not overfit; spare time trains up to `most_members` models.

    `rate` is the number of training steps per second of one model; the limit holds if the time is enough for `spare`
    times as many passes.
    """
    budget, training = config.duration.budget, config.training
    assert budget is not None
    passes, settled = TRAINING_SHARE * budget * rate / batches.steps_per_epoch, list(options)
    members = 1
    if passes >= spare * most:
        members = min(most_members, int(passes / (spare * most)))
        validations = _VALIDATIONS if members == 1 else _VALIDATIONS_OF_SEVERAL
        every = max(1, round(most * batches.steps_per_epoch / validations))
        training = replace(training, validate_every=training.validate_every or every)
        config = replace(config, duration=Duration(epochs=most, most_seconds=budget), training=training)
        settled += ["epochs", "validate_every"]
    if most_members > 1:
        config = replace(config, options=replace(config.options, num_members=members))
        settled.append("num_members")
    return replace(config, settled=Settled(settled, passes / members, rate * elements / members))


def resolve_decay(config: RunConfig, steps: float, *, most: float = 0.5) -> RunConfig:
    """Set the weight decay, if open, to forget over this many steps."""
    training = config.training
    if training.weight_decay is not None:
        return config
    decay = forgetting_decay(steps, training.learning_rate, most=most)
    return replace(config, training=replace(training, weight_decay=decay))


def describe_passes(config: RunConfig, elements: str, data: str) -> str:
    """Describe the speed and the passes over the data."""
    settled, duration, members = config.settled, config.duration, getattr(config.options, "num_members", 1)
    assert settled is not None
    assert settled.passes is not None
    if duration.budget is None:
        enough = f"{format_passes(duration.epochs or 0.0, data)} {'is' if duration.epochs == 1 else 'are'} enough"
    else:
        enough = f"{format_duration(duration.budget)} is about {format_passes(settled.passes, data)}"
    averaged = f", for each of {counted(members, 'model')} that are averaged" if members > 1 else ""
    return f"{settled.elements_per_second:,.0f} {elements}/s here; {enough}{averaged}"


def describe_size(config: RunConfig, schedule: SizeSchedule, default_options: Any) -> str:
    """Describe the speed, the passes over the data and the chosen size."""
    settled, options, default = config.settled, asdict(config.options), asdict(default_options)
    assert config.duration.budget is not None
    assert settled is not None
    assert settled.passes is not None
    smaller = ", ".join(
        f"{name.replace('_', ' ')} {options[name]}" + ("" if default[name] is None else f" instead of {default[name]}")
        for name in schedule.names
        if options[name] != default[name]
    )
    speed = f"{settled.elements_per_second:,.0f} {schedule.elements}/s here"
    passes = format_passes(settled.passes, "data")
    size = f": {smaller or 'the default size'}" if set(schedule.names) <= set(settled.options) else ""
    return f"{speed}; {format_duration(config.duration.budget)} is about {passes}{size}"
