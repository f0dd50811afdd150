"""How far the gradient of a single loss reaches back, as a mean over several losses of each row."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule.diagnostics.backpropagation import backpropagate
from chainrule.diagnostics.distance import gradient_norms

LOSSES = 6  # of each row: in its second half, so that each looks far back


@dataclass(frozen=True)
class SingleLosses:
    r"""Norms of the gradients of single losses by the distance k to each loss, (T,), a tensor a layer, bottom first.

    Every loss weighs as much as its gradient: one that the model is nearly certain of, as of a line's end, says little
    about the rest. At each distance the losses that have so many steps before them are compared with themselves:

    .. math:: \bar\delta_k = \bar\delta_0 \, \frac{\sum_n \lVert\delta^{(n)}_{n-k}\rVert}
                                              {\sum_n \lVert\delta^{(n)}_n\rVert}

    Args:
        delta: ‖δ‖.
        local: ‖g‖.
        cell: ‖∂L/∂c‖; an empty list where there are no cells.
    """

    delta: list[Tensor]
    local: list[Tensor]
    cell: list[Tensor]


def single_losses(module: nn.Module, x: Tensor, lengths: Tensor, rows: list[int]) -> SingleLosses:
    """Backpropagate several losses of each row, one at a time.

    Args:
        module, x: as for `backpropagate`.
        lengths: (B,).
        rows: those that count; others are not finite.

    >>> flow = single_losses(nn.RNN(2, 3, batch_first=True), torch.randn(4, 9, 2), torch.full((4,), 9), [0, 1, 2, 3])
    >>> flow.delta[0].shape
    torch.Size([9])
    """
    chosen = torch.tensor(rows, device="cpu")
    ends = _ends(lengths.cpu())
    passes = [(end[chosen], backpropagate(module, x, "last", end)) for end in ends]

    def profiles(part: str) -> list[Tensor]:
        layers = range(len(getattr(passes[0][1], part)))
        return [
            _profile([(end, gradient_norms(getattr(found, part)[layer][chosen])) for end, found in passes])
            for layer in layers
        ]

    return SingleLosses(profiles("delta"), profiles("local"), profiles("delta_cell"))


def _ends(lengths: Tensor) -> list[Tensor]:
    """Steps of the losses of each row, (B,) each: evenly over its second half, the last step among them."""
    ends = [(lengths * (LOSSES + place) / (2 * LOSSES)).ceil().long().clamp(min=2) for place in range(1, LOSSES + 1)]
    return [torch.minimum(end, lengths) for end in ends]


def _profile(losses: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Combine (ends (B,), norms (B, T)) of several losses; NaN at distances that no loss with a gradient has."""
    steps = torch.arange(losses[0][1].shape[1], device="cpu")
    kept = at_the_loss = torch.zeros(len(steps), dtype=torch.float64, device="cpu")
    count = 0
    for ends, norms in losses:
        places = ends.unsqueeze(1) - 1 - steps
        there = places >= 0
        back = norms.gather(1, places.clamp(min=0)).masked_fill(~there, 0)
        kept = kept + back.sum(0)
        at_the_loss = at_the_loss + (back[:, :1] * there).sum(0)
        count += int((ends > 0).sum())
    return torch.where(at_the_loss > 0, kept / at_the_loss, torch.nan) * (at_the_loss[0] / max(count, 1))
