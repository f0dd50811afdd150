"""Loss and gradient of training steps, which a GPU computes as one recorded launch where steps repeat."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._latent import LatentModel
from chainrule.kernels import enabled
from chainrule.kernels._cuda_graphs import RecordedGradient, recorded_gradient
from chainrule.state import State, leaves, map_state
from chainrule.training._batch import Batch, count_elements
from chainrule.training._evaluate import score
from chainrule.training._optimiser import clip_gradient
from chainrule.training._parallel import Processes

RECORDED = 16  # steps of one shape before the step is recorded: recording takes as long as a few
TRIALS = 2  # steps that are computed both ways before the recorded one is trusted
CLOSE = 1e-3  # relative difference of loss and gradient norm, at most


class StepResult(NamedTuple):
    """Figures of a step, on the device of the model, whose weights hold the gradient."""

    elements: int  # number in the rows of all processes
    nats: Tensor  # (), of all of them
    gradient_norm: Tensor  # (), before clipping
    state: State  # after the batch


class _Rows(NamedTuple):
    """A batch in the memory that a recorded step reads."""

    x: Tensor
    lengths: Tensor | None
    previous: Tensor | None
    context: Context
    whole: bool


class Gradients:
    """Computes the loss of a batch and its gradient per element, clipped, which the weights then hold.

    A step of a small model takes a GPU 2 to 9 times less than Python takes to launch its operations
    (benchmarks/LOG.md). After `RECORDED` steps of equal shape it is therefore recorded as a CUDA graph, unless the
    model holds modules from elsewhere: numbers that their Python code draws or counts would become constants.
    """

    def __init__(self, objective: nn.Module, model: nn.Module, group: Processes, clip_norm: float | None):
        self._objective, self._model, self._group, self._clip_norm = objective, model, group, clip_norm
        self._recordable = may_record(model, group)
        self._seen: Counter[Hashable] = Counter()
        self._recorded: RecordedGradient | None = None
        self._shape: Hashable = None  # of the recorded step
        self._trials = 0

    def may_launch(self, batch: Batch) -> bool:
        """Return whether steps of this batch's shape are launched as recorded ones, now or after some repetitions."""
        return self._recordable and batch.lengths is None

    @property
    def launched(self) -> bool:
        """Return whether steps are recorded ones, launched as a whole and no longer computed as well."""
        return self._recorded is not None and self._trials == TRIALS

    def __call__(self, batch: Batch, state: State, progress: float, seed: Callable[[], None]) -> StepResult:
        """Compute a step.

        Args:
            batch: the rows of this process.
            state: state before them.
            progress: fraction of the run done.
            seed: seeds the random numbers of the step.
        """
        own = count_elements(batch)
        # Processes that train together are told each other's numbers while they compute.
        elements = self._group.begin_sum(torch.tensor(own, device="cpu"))
        inputs = (batch.x, batch.previous, batch.context, None if batch.previous is None else state)
        launch, launched = self._launch(inputs, batch, own, progress), None
        if launch is not None:
            seed()
            launched = StepResult(own, *launch(inputs))
            if self._trials == TRIALS:
                return launched
            self._trials += 1
            self._model.zero_grad()
        seed()
        result = self._computed(batch, state, own, elements, progress)
        if launched is not None and not alike(launched, result):
            self._recordable = False
        return result

    def _launch(self, inputs: State, batch: Batch, elements: int, progress: float) -> RecordedGradient | None:
        """Return the recorded step if it can stand for this one; record it when it has been repeated often enough."""
        warming = isinstance(self._model, LatentModel) and progress < self._model.kl_warmup
        if self._recorded is not None and self._recorded.moved():  # someone has replaced weights
            self._recordable = False
        if not self._recordable:
            self._recorded = None
        if warming or not self.may_launch(batch):
            return None
        shape = (
            elements,
            batch.whole,
            batch.previous is None,
            tuple((leaf.shape, leaf.dtype) for leaf in leaves(inputs)),
        )
        if self._recorded is not None:
            return self._recorded if shape == self._shape else None
        self._seen[shape] += 1
        if self._seen[shape] == RECORDED:
            self._recorded, self._shape = self._record(inputs, batch.whole, elements), shape
            self._recordable = self._recorded is not None
        return None

    def _record(self, inputs: State, whole: bool, elements: int) -> RecordedGradient | None:
        def compute(inputs: State) -> State:
            x, previous, context, state = inputs
            rows = _Rows(x, None, previous, context, whole)
            return self._computed(rows, state, elements, lambda: torch.tensor(elements, device="cpu"), 1.0)[1:]

        there = map_state(lambda leaf: leaf.to(self._group.device), inputs)
        return recorded_gradient(compute, there, self._model)

    def _computed(
        self, batch: Batch, state: State, own: int, elements: Callable[[], Tensor], progress: float
    ) -> StepResult:
        several = self._group.world > 1  # which wait for the gradient of every weight
        nats, state = score(
            self._objective, batch, state, self._group.device, progress, every_weight=several and not own
        )
        summed = self._group.begin_sum(nats.detach().to(torch.float32, copy=True))  # while gradients are computed
        all_elements = int(elements())
        # Gradients are averaged over processes, so that this is the batch's, per element.
        (nats * (self._group.world / max(all_elements, 1))).backward()
        return StepResult(all_elements, summed(), clip_gradient(self._model, self._clip_norm), state)


def may_record(model: nn.Module, group: Processes) -> bool:
    """Return whether steps may be recorded: one process with a GPU trains a model of our own and torch's modules."""
    return group.world == 1 and group.device.type == "cuda" and enabled() and is_known(model)


def is_known(model: nn.Module) -> bool:
    """Return whether all modules are of this library or torch's, without hooks."""
    parts = list(model.modules())
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    return not hooked and all(type(part).__module__.split(".")[0] in ("chainrule", "torch") for part in parts)


def alike(launched: StepResult, computed: StepResult) -> bool:
    """Return whether a recorded step gives the loss and the gradient norm of a computed one."""
    pairs = torch.stack([torch.stack([step.nats, step.gradient_norm]) for step in (launched, computed)])
    return bool(torch.isclose(pairs[0], pairs[1], rtol=CLOSE, atol=0, equal_nan=True).all())
