"""Steps on a GPU recorded once as a CUDA graph, then launched as a whole.

A small step waits for its hundreds of launches and not for the GPU. A graph is one launch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

from chainrule.kernels import enabled
from chainrule.state import State, leaves, map_state

SHARE = 1 / 3  # of the memory of a GPU
_ERROR = 2  # torch.cuda.set_sync_debug_mode("error")


def being_recorded(*tensors: Tensor) -> bool:
    """Return whether operations on these tensors are being recorded, so that Python cannot see their results."""
    return any(tensor.is_cuda for tensor in tensors) and torch.cuda.get_sync_debug_mode() == _ERROR


@contextmanager
def refusing_to_wait() -> Iterator[None]:
    """Raise RuntimeError where Python waits for the GPU.

    Steps run so before they are recorded: one that fails within a recording leaves torch's generator and its memory
    in the middle of it.
    """
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # that torch does not notice every wait
            torch.cuda.set_sync_debug_mode(_ERROR)
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


class RecordedScores:
    """The scores (B, V) after each further element of sequences, in one launch, which overwrites those before.

    Everything that the graph reads and writes is kept here, for as long as it may be launched.
    """

    def __init__(self, step: Callable[[Tensor, State], tuple[Tensor, State]], x_prev: Tensor, state: State):
        self._graph, self._given, self._state = torch.cuda.CUDAGraph(), x_prev.clone(), map_state(torch.clone, state)
        with refusing_to_wait():
            step(self._given, self._state)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"), refusing_to_wait():
            self._scores, after = step(self._given, self._state)
            # A view of the state before is copied before anything is overwritten.
            before = {leaf.untyped_storage().data_ptr() for leaf in leaves(self._state)}
            apart = [leaf.clone() if leaf.untyped_storage().data_ptr() in before else leaf for leaf in leaves(after)]
            for old, new in zip(leaves(self._state), apart, strict=True):
                if (old.shape, old.dtype) != (new.shape, new.dtype):
                    raise RuntimeError("a state that grows cannot be recorded")
                old.copy_(new)

    def __call__(self, x_prev: Tensor) -> Tensor:
        self._given.copy_(x_prev)
        self._graph.replay()
        return self._scores


def recorded_scores(
    step: Callable[[Tensor, State], tuple[Tensor, State]], x_prev: Tensor, state: State
) -> RecordedScores | None:
    """Record the scores that a step gives from this input and state on; None where it cannot be recorded.

    The step must keep nothing outside its state, and never wait for the GPU.
    """
    if not enabled() or x_prev.device.type != "cuda":
        return None
    try:
        with torch.cuda.device(x_prev.device):
            return RecordedScores(step, x_prev, state)
    except RuntimeError:
        return None


class RecordedGradient:
    """A function that fills the gradients of weights, for inputs of one structure and shape, in one launch.

    The gradients stay in the graph's memory, and the next launch overwrites them. The results are copies.
    """

    def __init__(self, function: Callable[[State], State], inputs: State, model: nn.Module):
        self._inputs, self._model = map_state(torch.clone, inputs), model
        apart = torch.cuda.Stream()
        apart.wait_stream(torch.cuda.current_stream())
        # Torch and its libraries set themselves up at the first use of a stream.
        with torch.cuda.stream(apart), refusing_to_wait():
            function(self._inputs)
            model.zero_grad()
        torch.cuda.current_stream().wait_stream(apart)
        torch.cuda.empty_cache()  # a graph has memory of its own, about as much as the step had before
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph), refusing_to_wait():
            self._results = function(self._inputs)
        self._gradients = [weight.grad for weight in model.parameters()]
        model.zero_grad()
        self._places = self._memory()

    def _memory(self) -> list[int]:
        return [tensor.data_ptr() for tensor in (*self._model.parameters(), *self._model.buffers())]

    def moved(self) -> bool:
        """Return whether weights or buffers are no longer those that the graph reads."""
        return self._places != self._memory()

    def __call__(self, inputs: State) -> State:
        for old, new in zip(leaves(self._inputs), leaves(inputs), strict=True):
            old.copy_(new, non_blocking=True)
        self._graph.replay()
        for weight, gradient in zip(self._model.parameters(), self._gradients, strict=True):
            weight.grad = gradient
        return map_state(torch.clone, self._results)


def recorded_gradient(function: Callable[[State], State], inputs: State, model: nn.Module) -> RecordedGradient | None:
    """Record a function of `inputs` on a GPU that fills the gradients of a model; None where it cannot be recorded.

    Numbers that Python computes, draws or counts within the function become constants. Work that has taken more than
    `SHARE` of the memory is not recorded: it does not wait for launches, and a graph keeps its memory to itself.
    """
    device = next(model.parameters()).device
    if torch.cuda.max_memory_allocated(device) > SHARE * torch.cuda.get_device_properties(device).total_memory:
        return None
    try:
        with torch.cuda.device(device):
            return RecordedGradient(function, inputs, model)
    except RuntimeError:  # it waits for the GPU, or there is too little memory
        model.zero_grad()
        return None
