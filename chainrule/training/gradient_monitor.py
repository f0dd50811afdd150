"""A look at how gradients flow back through time, every few steps of training."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel
from chainrule.state import State, select
from chainrule.training.batch import Batch

GradientProbe: TypeAlias = Callable[[AutoregressiveModel, Tensor, Tensor | None, State, Tensor | None], list[Tensor]]
ROWS = 4  # of a batch: a look at more costs more and says the same
EVERY, EVERY_ON_GPU = 20, 100  # steps: small products, one after the other, are what a GPU is slow at
FADED = 0.01  # of the gradient at the loss: beyond that a layer does not reach


@dataclass(frozen=True)
class Profile:
    r"""How one layer's gradient changes with its distance from the loss of a row's last step.

    .. math:: r_k = \frac{\sum_b \lVert \delta_{b, n_b - k} \rVert}{\sum_b \lVert \delta_{b, n_b} \rVert},
        \qquad \delta_{b,t} = \frac{\partial \ell_{b, n_b}}{\partial h_{b,t}}

    The sums are over the rows b that are longer than k.

    Args:
        norm: the mean of ‖δ‖ at the loss itself, nats per unit of h.
        relative: r_0 = 1, r_1, ... as far as the longest row goes back; not finite where the gradient overflows.
    """

    norm: float
    relative: tuple[float, ...]

    @property
    def reach(self) -> int | None:
        """Steps after which r stays under 1%; None where the rows are too short to tell.

        >>> Profile(1.0, (1.0, 0.2, 0.03, 0.009, 0.002)).reach
        3
        """
        reach = 1 + max((k for k, ratio in enumerate(self.relative) if not ratio < FADED), default=0)
        return reach if reach < len(self.relative) else None


class GradientMonitor:
    """Looks at a few rows of a batch, in evaluation and in the precision of the weights; it changes nothing.

    Args:
        norms: called with the model, x (B, T), lengths, state and x_prev; returns each layer's ‖δ‖ (B, T), of a row's
            last step first: `chainrule.diagnostics.gradient_profile`.
        every: looks are at steps 1, 1 + every, 1 + 2·every, ...

    Raises:
        ValueError: `every` is less than 1.
    """

    def __init__(self, norms: GradientProbe, every: int):
        if every < 1:
            raise ValueError(f"watch_every: expected an integer >= 1, got {every}")
        self._norms, self._every = norms, every

    def due(self, step: int) -> bool:
        """Whether step `step`, counted from 1, is looked at."""
        return (step - 1) % self._every == 0

    def look(self, model: AutoregressiveModel, batch: Batch, state: State, device: torch.device) -> list[Profile]:
        """The layers' profiles, bottom first; none where no row has two steps. `state` is what the batch began in.

        Raises:
            ValueError: the model's gradients cannot be followed: it has no recurrence.
        """
        size, time = batch.x.shape
        lengths = torch.full((size,), time) if batch.lengths is None else batch.lengths.cpu()
        rows = torch.nonzero(lengths > 1).flatten()[:ROWS]
        if not len(rows):
            return []
        lengths = lengths[rows]
        x, there = batch.x[rows, : int(lengths.max())].to(device), lengths.to(device)
        if batch.lengths is None and batch.previous is not None:
            norms = self._norms(model, x, there, select(state, rows.to(device)), batch.previous[rows].to(device))
        else:
            norms = self._norms(model, x, there, None, None)
        return [_profile(layer.cpu().double(), lengths) for layer in norms]


def record(profiles: list[Profile]) -> dict[str, Any]:
    """A look as JSON, in four digits: ratios at distances 1, 2, 4, ... and the farthest; null where one is not finite.

    >>> record([Profile(2.0, (1.0, 0.5, 0.25, 0.125))])
    {'distances': [1, 2, 3], 'layers': [{'norm': 2.0, 'relative': [0.5, 0.25, 0.125], 'reach': None}]}
    """
    farthest = len(profiles[0].relative) - 1
    distances = sorted({farthest, *(2**power for power in range(farthest.bit_length()))})
    return {
        "distances": distances,
        "layers": [
            {
                "norm": _figure(profile.norm),
                "relative": [_figure(profile.relative[distance]) for distance in distances],
                "reach": profile.reach,
            }
            for profile in profiles
        ],
    }


def _profile(norms: Tensor, lengths: Tensor) -> Profile:
    """norms: (B, T), zero where a row has no such step."""
    there = torch.arange(norms.shape[1]) < lengths.unsqueeze(1)
    at_the_loss = (norms[:, :1] * there).sum(0)  # (T,), of the rows that go back so far
    relative = torch.where(at_the_loss > 0, norms.sum(0) / at_the_loss, 0.0)
    return Profile(float(norms[:, 0].mean()), tuple(relative.tolist()))


def _figure(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
