"""The fastest way to compute a training step, found by taking a few steps each way."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from time import monotonic, perf_counter
from typing import Any, Literal

import torch

from chainrule.base import TrainableModel
from chainrule.layers.recurrent import Backend
from chainrule.state import leaves
from chainrule.training.computation import (
    Computation,
    computing,
    multiplies_bfloat16,
    multiply_dtype,
    recurrent_layers,
    usable_threads,
)
from chainrule.training.evaluate import Batch, Objective, TrainingBatches, count_elements, score
from chainrule.training.optimiser import Kind, clip_gradient, make_optimiser
from chainrule.training.parallel import own_randomness

SHARE, MOST_SECONDS = 0.02, 2.0  # of a run may go into the choice
LEAST_STEPS = 2  # of each candidate, the first left out: with fewer nothing is decided
ENOUGH_STEPS = 4  # of each candidate: as many as sizes are timed
# Times as fast a way has to be to be taken: of several steps, of one step of each size, of a single one.
NOISE, NOISE_OF_SIZES, NOISE_OF_ONE = 1.03, 1.1, 1.25
_LEAST_CHUNK = 32  # elements, of which a quarter is timed
HOPELESS = 4.0  # times as slow in the first step, and a candidate is not tried again
_POOL = 16  # batches whose sizes are compared
_RANKS = (14, 7, 11, 3)  # of the sizes that are timed; the first, which is not counted, is a large one


@dataclass(frozen=True)
class Choice:
    """The way to compute training steps.

    Args:
        computation: the way.
        elements_per_second: of each candidate that was timed, by its description; empty where none was.
    """

    computation: Computation
    elements_per_second: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        rates = dict(self.elements_per_second)
        rate = rates.pop(str(self.computation), None)
        if rate is None:
            return str(self.computation)
        others = ", ".join(f"{name}: {other:,.0f}" for name, other in rates.items())
        near = "; a lead as small as that is within the noise" if max(rates.values(), default=0.0) > rate else ""
        return f"{self.computation}: {rate:,.0f} elements/s here" + (f" ({others}{near})" if others else "")


@dataclass(frozen=True)
class Candidates:
    """The values that each part of a `Computation` may take, the one to take without timing first."""

    threads: tuple[int, ...]
    precision: tuple[Literal["float32", "bfloat16"], ...]
    backend: tuple[Backend, ...]

    @property
    def default(self) -> Computation:
        """The first of each."""
        return Computation(self.threads[0], self.precision[0], self.backend[0])

    @property
    def stages(self) -> list[list[dict[str, Any]]]:
        """The choices made one after the other: each lists changes of the best way so far, the first being no change.

        The precision is chosen together with the vendor's kernel, which may be fast in one precision only. The most
        important choice comes first; if time is short, later stages change nothing.
        """
        kernels = [
            {"precision": precision, "backend": backend} for precision in self.precision for backend in self.backend[:2]
        ]
        written_out = [{}, *({"backend": backend} for backend in self.backend[2:])]
        return [ways for ways in (kernels, written_out, [{"threads": n} for n in self.threads]) if len(ways) > 1]


def make_candidates(
    model: TrainableModel,
    device: torch.device,
    *,
    threads: int | None = None,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    backend: Literal["auto", "rule", "vendor", "bptt"] = "auto",
) -> Candidates:
    """Choices for a model on a device where the user left them open with None or "auto".

    Threads are all, half of them, or one. bfloat16 is a candidate where the device multiplies it natively. Recurrent
    layers may run a vendor's kernel, their written-out steps, or what their own rule takes for each input ("rule" here,
    "auto" of the layers). On a GPU nothing has to be timed.
    """
    usual: Literal["float32", "bfloat16"] = "float32"
    if multiply_dtype(precision, device) == torch.bfloat16:
        usual = "bfloat16"
    counts: tuple[int, ...] = (threads or usable_threads(),)
    precisions: tuple[Literal["float32", "bfloat16"], ...] = (usual,)
    backends: tuple[Backend, ...] = ("auto" if backend == "rule" else backend,)
    if device.type == "cpu":
        if threads is None:
            counts = tuple(sorted({counts[0], max(1, counts[0] // 2), 1}, reverse=True))
        if precision == "auto" and usual == "bfloat16":
            precisions = ("bfloat16", "float32")
        layers = recurrent_layers(model)
        if backend == "auto" and layers and all(layer.vendor_computes_this() for layer in layers):
            # A vendor's kernel may not exist in a precision that the processor has not.
            emulated = usual == "bfloat16" and not multiplies_bfloat16()
            backends = ("auto", "bptt") if emulated else ("auto", "vendor", "bptt")
    return Candidates(counts, precisions, backends)


def typical_batches(batches: TrainingBatches) -> list[Batch]:
    """Batches to time: the first where all are of one size, else one of each of some sizes.

    The fastest way depends on the size: the gradients of a vendor's kernel over packed rows cost the square of their
    length.
    """
    sizes = _sizes(batches)
    if len(set(sizes)) == 1:
        return [batches.at(0)]
    ranked = sorted(range(_POOL), key=sizes.__getitem__)
    return [batches.at(ranked[rank]) for rank in _RANKS]


def average_batch(batches: TrainingBatches) -> Batch:
    """The batch, among a run's first, whose size is nearest to their mean; of equal ones the first."""
    sizes = _sizes(batches)
    return batches.at(min(range(_POOL), key=lambda step: abs(sizes[step] - mean(sizes))))


def _sizes(batches: TrainingBatches) -> list[int]:
    """The numbers that each of a run's first batches consists of, padding and context included."""
    pool = map(batches.at, range(_POOL))
    return [sum(part.numel() for part in leaves((batch.x, batch.context))) for batch in pool]


def choose_computation(
    model: TrainableModel, batches: Sequence[Batch], candidates: Candidates, seconds: float, device: torch.device
) -> Choice:
    """Time the candidates stage by stage, each with the best of those before, in steps of AdamW.

    The best way so far is kept unless another is over 3% faster, 10% if batches have several sizes, or 25% if there
    was time for two steps each only. It is also kept if there was no time for that. If whole chunks of a stream take
    too long, a quarter of each row is timed, since for full rows the fastest way hardly depends on their length.
    Weights, random state and data are left unchanged.

    Args:
        model: the model to be trained.
        batches: to take by turns, from `typical_batches`.
        candidates: the ways, from `make_candidates`.
        seconds: not to be exceeded by more than a step.
        device: where the model is trained.
    """
    best, rates = candidates.default, dict[str, float]()
    batches, spent = _affordable(model, batches, candidates, seconds, device)
    deadline = monotonic() + seconds - spent
    for changes in candidates.stages:
        ways = [replace(best, **change) for change in changes]
        taken = _step_seconds(model, batches, ways, deadline - monotonic(), device, "adamw", rounds=ENOUGH_STEPS)
        average, noise = (median, NOISE) if len(batches) == 1 else (mean, NOISE_OF_SIZES)
        timed = {way: average(steps[1:]) for way, steps in zip(ways, taken, strict=True) if len(steps) >= LEAST_STEPS}
        if not timed:
            continue
        counted = range(1, max(map(len, taken)))
        elements = mean(count_elements(batches[turn % len(batches)]) for turn in counted)
        found = {str(way): elements / duration for way, duration in timed.items()}
        # A stage compares ways with one another: the machine may be busier than it was in the stage before.
        scale = rates[str(best)] / found[str(best)] if str(best) in rates and str(best) in found else 1.0
        rates |= {name: scale * rate for name, rate in found.items()}
        fastest = min(timed, key=timed.__getitem__)
        if max(map(len, taken)) <= LEAST_STEPS:
            noise = NOISE_OF_ONE
        if best not in timed or timed[best] > noise * timed[fastest]:  # not timed: hopeless
            best = fastest
    return Choice(best, rates)


@dataclass(frozen=True)
class _Piece:
    """The beginning of each row of a batch."""

    x: torch.Tensor
    previous: torch.Tensor | None
    lengths: None = None
    context: None = None
    whole: bool = False


def _affordable(
    model: TrainableModel, batches: Sequence[Batch], candidates: Candidates, seconds: float, device: torch.device
) -> tuple[Sequence[Batch], float]:
    """Batches on which there is time to try the ways of a stage, and the seconds of the step that told.

    They are whole, or a quarter of each row of a stream.
    """
    batch = batches[0]
    stream = batch.x.dim() == 2 and batch.lengths is None and batch.context is None and not batch.whole
    if not stream or batch.x.shape[1] < _LEAST_CHUNK or not candidates.stages:
        return batches, 0.0
    ((first, *_),) = _step_seconds(model, batches, [candidates.default], 0.0, device, "adamw")
    if first * max(map(len, candidates.stages)) * (LEAST_STEPS + 1) <= seconds:
        return batches, first
    return [_Piece(batch.x[:, : batch.x.shape[1] // 4], batch.previous)], first


def steps_per_second(
    model: TrainableModel,
    batch: Batch,
    ways: Sequence[Computation],
    seconds: float,
    device: torch.device,
    optimiser: Kind = "adamw",
    *,
    extended: float = 0.0,
) -> list[float]:
    """Training steps per second of a model in each of some ways to compute them; 0 where there was no time to try one.

    All ways are timed by turns, in whole rounds while there is time; the first round is not counted where there was
    another. The steps are those of training, optimiser included, on a copy of the model.

    Args:
        model: left as it is, and so is torch's random state.
        batch: whose rows begin with it, as those of the first batch of a run do.
        ways: how to compute.
        seconds: not to be exceeded by more than a step.
        device: where to compute.
        optimiser: that updates the weights.
        extended: seconds that a second round may end in where there is time for one only: first steps are slow.
    """
    taken = _step_seconds(model, [batch], ways, seconds, device, optimiser, extended=extended)
    return [1 / median(steps[1:] or steps) if steps else 0.0 for steps in taken]


def seconds_to_choose(
    model: TrainableModel, batch: Batch, way: Computation, device: torch.device, *, budget: float | None, steps: int
) -> float:
    """The seconds that timing candidates may take: 2% of a run, and 2 at most.

    Args:
        model: the model to be trained.
        batch: its first batch.
        way: how its steps are computed if nothing else is chosen; tells how long a run of given steps takes.
        device: where it is trained.
        budget: seconds that the run lasts; None where it has a number of steps.
        steps: that number.
    """
    if budget is not None:
        return min(MOST_SECONDS, SHARE * budget)
    if SHARE * steps < 2 * LEAST_STEPS:  # not even for two candidates
        return 0.0
    (rate,) = steps_per_second(model, batch, [way], 0.0, device)
    return min(MOST_SECONDS, SHARE * steps / rate)


def _step_seconds(
    model: TrainableModel,
    batches: Sequence[Batch],
    ways: Sequence[Computation],
    seconds: float,
    device: torch.device,
    kind: Kind,
    *,
    rounds: int | None = None,
    extended: float = 0.0,
) -> list[list[float]]:
    """The seconds of each step taken in each way, by turns while there is time, `rounds` times at most.

    A round takes a batch, the next one the next batch. For the second round there is time up to `extended` seconds.
    """
    taken: list[list[float]] = [[] for _ in ways]
    with own_randomness(device):
        trial = copy.deepcopy(model).to(device).train()
        optimiser = make_optimiser(trial, 0.0, 0.0, kind)
        began, running = monotonic(), list(range(len(ways)))
        while True:
            round_began, batch = monotonic(), batches[max(map(len, taken)) % len(batches)]
            for index in running:
                with computing(trial, ways[index]):
                    taken[index].append(_take_step(trial, optimiser, batch, ways[index], device))
                if monotonic() - began > seconds and not all(taken):
                    return taken
            quickest = min(taken[index][0] for index in running)
            running = [index for index in running if taken[index][0] <= HOPELESS * quickest]
            running.reverse()  # Muon's dear steps, every second one, meet all ways
            now, done = monotonic(), max(map(len, taken))
            limit = seconds if done >= LEAST_STEPS else max(seconds, extended)
            if now + (now - round_began) - began > limit or done == rounds:
                return taken


def _take_step(
    model: TrainableModel, optimiser: torch.optim.Optimizer, batch: Batch, way: Computation, device: torch.device
) -> float:
    began = perf_counter()
    nats, _ = score(Objective(model, way.dtype), batch, None, device)
    (nats / count_elements(batch)).backward()
    clip_gradient(model, 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    nats.item()
    return perf_counter() - began
