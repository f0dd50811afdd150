"""Agreement of two computations of the same numbers, significance of means and counts, and revealing weights."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chainrule.testing._subject import Batch, M, Subject, Violation, independent_copy
from chainrule.testing._values import distance

SIGNIFICANCE = 1e-7  # probability that one family of tests rejects a correct model
ERRORS = 5.5  # standard errors up to which a mean is accepted: 4e-8 for a normal mean, with room for skewed ones


class Surprise(NamedTuple):
    """The most unlikely of several sums."""

    event: int
    seen: float
    expected: float
    deviation: float


def surprise(seen: Tensor, expected: Tensor, variance: Tensor, largest: float) -> Surprise | None:
    r"""Return the sum, of K, that deviates most significantly from its expectation; `None` if no deviation is.

    The terms of each sum have known conditional expectations: S = seen - expected is a martingale, and Freedman's
    inequality (1975) bounds :math:`P(|S| \ge a) \le 2 \exp(-a^2 / (2 (V + b a / 3)))` with V the sum of the conditional
    variances and b the largest term. It holds for any number of terms and for rare events.
    """
    deviation = (seen - expected).abs()
    exponent = deviation**2 / (2 * (variance + largest * deviation / 3)).clamp_min(1e-300)
    worst = int(exponent.argmax())
    if not float(exponent[worst]) > math.log(2 * len(seen) / SIGNIFICANCE):
        return None
    return Surprise(worst, float(seen[worst]), float(expected[worst]), float(variance[worst].sqrt()))


def far_from_zero(terms: Tensor) -> float | None:
    """Return the standard errors from 0 to the mean of hundreds of terms in [-1, 1]; `None` if not significant."""
    deviation = terms.std().clamp_min(1e-12) / len(terms) ** 0.5
    errors = float(terms.mean() / deviation)
    # 1 / sqrt(N) guards against an underestimated spread, as of a few hundred equal terms.
    allowed = math.sqrt(2 * math.log(2 / SIGNIFICANCE))
    return errors if abs(errors) > allowed + 1 and float(terms.mean().abs()) > len(terms) ** -0.5 else None


def uneven_ranks(ranks: Tensor, size: int) -> bool:
    """Test ranks (N,) for a significant deviation from the uniform distribution on 0..size-1."""
    counts = torch.bincount(ranks, minlength=size).double()
    expected = torch.full_like(counts, len(ranks) / size)
    return surprise(counts, expected, expected * (1 - 1 / size), 1.0) is not None


class Average(NamedTuple):
    """Mean over draws, with its standard error."""

    mean: Tensor
    error: Tensor

    @classmethod
    def of(cls, draws: Tensor) -> "Average":
        """Average over the first axis."""
        return cls(draws.mean(0), draws.std(0) / len(draws) ** 0.5)

    def require(self, expected: "Tensor | Average", message: str, *, below: bool = False) -> None:
        """Raise `Violation` if the gap is significant (only an excess if `below`); formats row, seen, expected."""
        other, error = (expected.mean, expected.error) if isinstance(expected, Average) else (expected, 0.0)
        gap = self.mean - other
        allowed = ERRORS * (self.error**2 + error**2).sqrt() + 1e-8 * (1 + other.abs())
        wrong = ~((gap if below else gap.abs()) <= allowed)
        if wrong.any():
            at = tuple(int(index) for index in wrong.nonzero()[0])
            raise Violation(
                message.format(row=at[0], seen=f"{float(self.mean[at]):.6g}", expected=f"{float(other[at]):.6g}")
            )


TOLERANCE = 1e-9  # relative; in a well-conditioned model float64 rounding stays below 1e-12
SHARP = 1e-6  # tolerance for large weights, which amplify rounding


def rounding(subject: Subject[M], batch: Batch) -> Tensor:
    """Measure how much rounding may change the numbers of a batch, (B, T) nats."""
    return rounded(subject, batch)[1]


@torch.no_grad()
def rounded(subject: Subject[M], batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the numbers of a batch, (B, T, K), and how much rounding may change them, (B, T) nats."""
    # A recurrence amplifies the last bit at every step: move the weights by a few units in the last place, and allow a
    # hundred times the effect.
    moved = independent_copy(subject.model)
    for parameter in moved.parameters():
        if parameter.is_floating_point():
            parameter.mul_(1 + 4 * torch.finfo(torch.float64).eps * subject.normal(parameter.shape))
    numbers = subject.numbers(batch)
    return numbers, TOLERANCE + 100 * distance(numbers, subject.numbers(batch, moved))


def trials(subject: Subject[M], batch: Batch) -> Iterator[tuple[str, M, Tensor]]:
    """Yield the model and a copy with large weights, each with a label and a tolerance (B, T)."""
    allowed = rounding(subject, batch)
    for label, model in weighted(subject, "sharp"):
        yield label, model, torch.full_like(allowed, SHARP) if label else allowed


def require_equal(left: Tensor, right: Tensor, tolerance: Tensor | float, message: str) -> None:
    """Raise `Violation` if two (B, T, K) tensors differ by more than `tolerance` (B, T); formats {t}, {row}, {gap}."""
    if left.shape != right.shape:
        what = message.format(t="t", row="row", gap="some")
        raise Violation(
            f"distributions of different kinds: {tuple(left.shape)} and {tuple(right.shape)} numbers; {what}"
        )
    gaps = distance(left, right)
    apart = gaps > tolerance
    if not apart.any():
        return
    t = int(apart.any(0).nonzero()[0])
    row = int(apart[:, t].nonzero()[0])
    raise Violation(message.format(t=t, row=row, gap=f"{float(gaps[row, t]):.3g}"))


def require_sum(total: Tensor, expected: Tensor, tolerance: float, label: str) -> None:
    """Raise `Violation` if log-likelihoods of rows, (B,), are not the sums of their elements' terms."""
    if tuple(total.shape) != tuple(expected.shape):
        raise Violation(f"{label}log_prob: expected shape {tuple(expected.shape)}, got {tuple(total.shape)}")
    gap = (total - expected).abs() / (1 + expected.abs())
    wrong = (gap > tolerance) | (total.isnan() != expected.isnan())
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise Violation(
            f"{label}log_prob of row {row} is {float(total[row]):.6g}, "
            f"the sum of its conditional log-probabilities {float(expected[row]):.6g}"
        )


NORMAL = {  # standard deviation of weights, times 1 / sqrt(fan-in), and of biases
    "fresh": (1.0, 1.0),  # keeps activations of ordinary size
    "sharp": (3.0, 0.5),  # conditionals depend strongly on earlier elements
    "steep": (8.0, 0.5),  # saturated units act as switches that preserve a difference
    "biased": (1.0, 4.0),  # opens some gates for long, and activates dead rectifiers
}


def jittered(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Scale every weight by a random positive factor, which preserves signs and constraints on them."""
    return parameter * (0.5 * subject.normal(parameter.shape)).exp()


def uneven(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Draw each parameter at a different scale from 0.3 to 10."""
    scale = 0.3 * float(10 ** (1.5 * subject.uniform((1,))))
    return _normal(subject, parameter, scale, scale)


def isometric(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Draw orthogonal recurrences; everything else is so small that units stay in their linear range."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.cat([torch.linalg.qr(subject.normal((blocks, blocks)))[0] for _ in parameter.split(blocks)])
    return 0.02 * _normal(subject, parameter, 1.0, 0.0)


def remembering(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Make recurrences the identity, with small positive biases that keep rectifiers active."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.eye(blocks, device=parameter.device).repeat(parameter.shape[0] // blocks, 1)
    if parameter.dim() < 2:
        return 0.05 * subject.normal(parameter.shape).abs()
    return 0.1 * _normal(subject, parameter, 1.0, 0.0)


OTHERS = {"jittered": jittered, "uneven": uneven, "isometric": isometric, "remembering": remembering}


def weighted(subject: Subject[M], *draws: str) -> Iterator[tuple[str, M]]:
    """Yield the model and copies with random weights; skip draws for which the model fails."""
    yield "", subject.model
    for draw in draws:
        model = independent_copy(subject.model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.is_floating_point() and parameter.numel():
                    make = OTHERS.get(draw) or partial(_normal, gain=NORMAL[draw][0], bias=NORMAL[draw][1])
                    parameter.copy_(make(subject, parameter))
            try:
                useless = subject.numbers(subject.batch(4), model).isnan().any()
            except Exception:
                continue  # for example, a scale was drawn negative
        if not useless:
            yield f"with {draw} random weights, ", model


def _normal(subject: Subject[Any], parameter: Tensor, gain: float, bias: float) -> Tensor:
    if parameter.dim() < 2:
        return bias * subject.normal(parameter.shape)
    fan_in = parameter[0].numel()
    return gain * fan_in**-0.5 * subject.normal(parameter.shape)


def _square_blocks(parameter: Tensor) -> int:
    """Return M for a recurrent matrix of shape (M, M), (2M, M), (3M, M) or (4M, M); 0 for any other."""
    if parameter.dim() != 2 or parameter.shape[0] % parameter.shape[1] or parameter.shape[0] > 4 * parameter.shape[1]:
        return 0
    return parameter.shape[1]
