"""A model with a latent code under examination: a copy in float64, some rows, and averages over draws."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chainrule.base import Context
from chainrule.heads import Head, head_of
from chainrule.latent import LatentModel
from chainrule.testing.choices import Choices
from chainrule.testing.contract_check import Check, check_lengths, make_check
from chainrule.testing.subject import OPERATIONS, ROWS, Violation, device_of, independent_copy

MOST, LEAST = 5_000, 200  # draws for each row, by the size of the model
ERRORS = 5.5  # standard errors that chance is allowed: 4e-8 for one normal mean, with room for skewed ones


class LatentSubject(Choices):
    """A copy of a `LatentModel` that may be changed at will, with a few rows.

    Attributes:
        model: the copy, float64, in evaluation mode, on the device of the original.
        x: (B, ...), 2 to `ROWS` rows.
        lengths: the caller's, or `None`.
        draws: how many codes of each row the checks may afford.
    """

    def __init__(self, model: LatentModel, x: Tensor, context: Context, lengths: Tensor | None, seed: int):
        super().__init__(seed, device_of(model))
        self.model = independent_copy(model)
        rows = torch.arange(max(2, min(ROWS, len(x)))) % len(x)
        x = x.detach().to(self.device)
        self.x = (x.double() if x.is_floating_point() else x)[rows]
        self.lengths = None if lengths is None else lengths.detach().to(self.device)[rows]
        work = 2 * sum(weight.numel() for weight in model.parameters()) * len(self.x) + 1
        self.draws = int(min(max(OPERATIONS / work / 8, LEAST), MOST))

    @property
    def given(self) -> dict[str, Any]:
        """The lengths as keyword arguments."""
        return {"lengths": self.lengths}

    def encode(self, x: Tensor | None = None, lengths: Tensor | None = None) -> Head:
        """`encode`; the kind and shape of the answer is checked."""
        x = self.x if x is None else x
        posterior = head_of(self.model.encode(x, lengths=lengths))
        if tuple(posterior.batch_shape) != (len(x),) or len(posterior.event_shape) != 1:
            raise Violation(
                f"encode: expected batch shape (B,) = ({len(x)},) and one axis of numbers, "
                f"got {tuple(posterior.batch_shape)} and {tuple(posterior.event_shape)}"
            )
        return posterior

    def rows(self, numbers: Tensor, name: str) -> Tensor:
        """Numbers that must be (B,) and finite."""
        if tuple(numbers.shape) != (len(self.x),):
            raise Violation(f"{name}: expected shape (B,) = ({len(self.x)},), got {tuple(numbers.shape)}")
        if not numbers.isfinite().all():
            raise Violation(f"{name} of row {int((~numbers.isfinite()).nonzero()[0])} is not finite")
        return numbers

    def one_layer(self) -> bool:
        """Whether the code is a single layer, whose posterior is `encode` and whose prior is N(0, I)."""
        return self.encode(lengths=self.lengths).event_shape[0] == self.model.latent_size


@dataclass(frozen=True)
class Average:
    """A mean over draws, with its standard error.

    Args:
        mean: (...).
        error: (...).
    """

    mean: Tensor
    error: Tensor

    @classmethod
    def of(cls, draws: Tensor) -> "Average":
        """Over the first axis."""
        return cls(draws.mean(0), draws.std(0) / len(draws) ** 0.5)

    def require(self, expected: "Tensor | Average", message: str, *, below: bool = False) -> None:
        """Raise `Violation` where chance explains the gap to what is expected badly.

        Args:
            expected: numbers, or another average.
            message: the error, with `{row}`, `{seen}` and `{expected}`.
            below: whether to be below what is expected is allowed.
        """
        other, error = (expected.mean, expected.error) if isinstance(expected, Average) else (expected, 0.0)
        gap = self.mean - other
        allowed = ERRORS * (self.error**2 + error**2).sqrt() + 1e-8 * (1 + other.abs())
        wrong = ~((gap if below else gap.abs()) <= allowed)
        if wrong.any():
            at = tuple(int(place) for place in wrong.nonzero()[0])
            raise Violation(
                message.format(row=at[0], seen=f"{float(self.mean[at]):.6g}", expected=f"{float(other[at]):.6g}")
            )


def latent_check(body: Callable[[LatentSubject], str]) -> Check[LatentModel]:
    """Make a check of a function that examines a `LatentSubject`; see `make_check`."""
    return make_check(body, LatentSubject, check_latent_arguments)


def check_latent_arguments(model: LatentModel, x: Tensor, context: Context, lengths: Tensor | None) -> None:
    """Raise ValueError for arguments that no model with a code could be checked with."""
    if not isinstance(model, LatentModel):
        raise ValueError(f"model: expected a LatentModel, got {type(model).__name__}")
    if context is not None:
        raise ValueError("context: models with a latent code are not conditioned on anything; leave it None")
    if not isinstance(x, Tensor) or x.dim() < 2 or not len(x):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x: expected a tensor of shape (B, ...) with B >= 1, got {got}")
    if lengths is not None:
        check_lengths(lengths, len(x), x.shape[1])
