"""Steps on a GPU recorded once as a CUDA graph, then launched as a whole."""

from collections.abc import Callable

import torch
from torch import Tensor

from chainrule.kernels import enabled
from chainrule.state import State, leaves, map_state


class RecordedScores:
    """The scores (B, V) after each further element of sequences, in one launch, which overwrites those before.

    Everything that the graph reads and writes is kept here, for as long as it may be launched.
    """

    def __init__(self, step: Callable[[Tensor, State], tuple[Tensor, State]], x_prev: Tensor, state: State):
        self._graph, self._given, self._state = torch.cuda.CUDAGraph(), x_prev.clone(), map_state(torch.clone, state)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
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
        return RecordedScores(step, x_prev, state)
    except RuntimeError:
        return None
