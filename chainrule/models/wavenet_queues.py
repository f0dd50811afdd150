"""The queues of a WaveNet's layers, side by side in one tensor."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from chainrule.state import State


class Queues:
    r"""What each layer keeps of its past, oldest first: layer l its last :math:`n_l = (k-1) d_l` inputs.

    A state holds them in `past`, (B, R, N), in which every layer has a region of :math:`n_l + c` rows. In the region
    the queue is the rows [end, end + n_l), where `end` (B,) is at most c: to step on, a row is written after the queue
    and `end` grows, and the queue before is still there. Without room to grow, c = 0, the queues stand side by side.

    Args:
        lengths: n_l of every layer.
    """

    def __init__(self, lengths: Sequence[int]):
        self.lengths = list(lengths)

    def starts(self, room: int) -> list[int]:
        """Where the region of every layer begins if c = `room`, and where the last one ends."""
        return list(accumulate((length + room for length in self.lengths), initial=0))

    def of(self, state: State) -> Tensor:
        """The queues of a state, (B, sum of n_l, N), however far each row of it has grown."""
        past, end = state["past"], state["end"]
        room = (past.shape[1] - sum(self.lengths)) // len(self.lengths)
        if room == 0:
            return past
        rows = torch.cat(
            [
                torch.arange(start, start + length, device=past.device)
                for start, length in zip(self.starts(room), self.lengths, strict=False)
            ]
        )
        index = (rows + end.unsqueeze(1)).unsqueeze(2).expand(-1, -1, past.shape[2])
        return past.gather(1, index)
