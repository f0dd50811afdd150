"""Distributions as numbers, their supports and integrals; agreement of numbers, significance, revealing weights."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution, constraints

from chainrule.heads import Categorical
from chainrule.testing._subject import Batch, M, Subject, Violation, independent_copy

PROBES = 8
MOST_PROBES = 64
_DEPTH = 40  # halvings of a panel at most
# Methods that read a table of log-probabilities.
PLAIN = (Categorical.log_prob, distributions.Categorical.log_prob)


def probe_values(distribution: Distribution, x: Tensor) -> Tensor:
    """Return a few elements of the support, (K, *element shape)."""
    support = finite_support(distribution)
    if support is not None and support.shape[1:] == x.shape[2:]:
        spread = evenly(len(support), min(PROBES, len(support)))
        return support[spread.to(support.device)].to(x)
    drawn = distribution.sample().to(x)
    # If positions have different supports, as the columns of a table, take an element of each.
    count = PROBES - PROBES // 2 if has_support(distribution) else min(x.shape[1], MOST_PROBES)
    return torch.cat([x.flatten(0, 1)[: PROBES // 2], drawn.flatten(0, 1)[:count]])


def values(distribution: Distribution, probes: Tensor, axes: int) -> Tensor:
    """Return the log-probabilities of all categorical symbols, else of the probes, (B, K) or (B, T, K)."""
    if isinstance(distribution, distributions.Categorical):
        logits = distribution.logits
        if type(distribution).log_prob not in PLAIN:  # an overridden log_prob may disagree with the table
            for probe in probes[:4]:
                at_probe = _at(distribution, probe.unsqueeze(0), axes).view_as(logits[..., :1])
                logits = logits.index_copy(-1, probe.long().view(1), at_probe)
        return logits.flatten(axes)
    return _at(distribution, probes, axes)


def _at(distribution: Distribution, probes: Tensor, axes: int) -> Tensor:
    shape, elements = distribution.batch_shape[:axes], probes.shape[1:]
    grid = probes.view(-1, *[1] * axes, *elements).expand(-1, *shape, *elements)
    return distribution.log_prob(grid).movedim(0, axes).flatten(axes)


def distance(left: Tensor, right: Tensor) -> Tensor:
    """Return the largest difference over the last axis, relative to numbers above 1.

    Equal infinities and pairs of NaN have distance 0; an infinity or NaN is infinitely far from a finite number.
    """
    scale = 1 + torch.where(left.isfinite(), left.abs(), 0).amax(-1, keepdim=True)
    gap = (left - right).abs() / scale
    gap = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, gap)
    return gap.nan_to_num(nan=torch.inf, posinf=torch.inf).amax(-1)


LARGEST = 65536  # maximum number of listed values


def finite_support(distribution: Distribution) -> Tensor | None:
    """Return every value of an element, (K, *event shape); `None` if they cannot be listed."""
    if isinstance(distribution, distributions.Independent):
        return _vectors(distribution)
    if distribution.has_enumerate_support:
        try:
            values = distribution.enumerate_support(expand=False)
        except NotImplementedError:  # raised by torch for a support that cannot be listed
            return None
        return values.reshape(values.shape[0], *distribution.event_shape) if len(values) <= LARGEST else None
    constraint = _constraint(distribution)
    if getattr(constraint, "is_discrete", False) and not distribution.event_shape:
        low, high = _ends(constraint)
        if low > -float("inf") and high - low < LARGEST:
            return torch.arange(low, high + 1, device="cpu")
    return None


def interval(distribution: Distribution) -> tuple[float, float] | None:
    """Return the bounds of the support of a real number; `None` for any other element."""
    constraint = _constraint(distribution)
    if constraint is None or constraint.is_discrete or constraint.event_dim or distribution.event_shape:
        return None
    if constraint is constraints.real or hasattr(constraint, "lower_bound") or hasattr(constraint, "upper_bound"):
        return _ends(constraint)
    return None


def has_real_support(distribution: Distribution) -> bool:
    """Return true if every entry of an element may be any real number."""
    constraint = _constraint(distribution)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return constraint is constraints.real or constraint is constraints.real_vector


def has_support(distribution: Distribution) -> bool:
    """Return false if the support differs between positions."""
    return _constraint(distribution) is not None


def _constraint(distribution: Distribution) -> Any:
    try:
        constraint: Any = distribution.support
    except NotImplementedError:  # raised by torch for a distribution without a common support
        return None
    if isinstance(distribution, distributions.MixtureSameFamily):
        return constraint.base_constraint if hasattr(constraint, "base_constraint") else constraint
    return constraint


def _ends(constraint: Any) -> tuple[float, float]:
    low = torch.as_tensor(getattr(constraint, "lower_bound", -float("inf")), dtype=torch.float64)
    high = torch.as_tensor(getattr(constraint, "upper_bound", float("inf")), dtype=torch.float64)
    return float(low.min()), float(high.max())


def _vectors(distribution: distributions.Independent) -> Tensor | None:
    """List all vectors of independent entries."""
    entry = finite_support(distribution.base_dist)
    entries = distribution.event_shape.numel()
    if entry is None or entry.dim() != 1 or len(entry) ** entries > 4096:
        return None
    combinations = torch.tensor(list(product(range(len(entry)), repeat=entries)), device=entry.device)
    return entry[combinations].reshape(-1, *distribution.event_shape)


def evenly(length: int, count: int) -> Tensor:
    """Return `count` indices of `length` places, evenly spread from the first to the last, on the CPU."""
    return torch.linspace(0, length - 1, count, dtype=torch.float64, device="cpu").round().long()


def integral(density: Callable[[Tensor], Tensor], low: float, high: float, hints: Tensor) -> tuple[float, float]:
    """Integrate `density` from low to high, and estimate the error.

    Gauss-Legendre panels lie between the hints (points near the mass, such as draws from the density) and are halved
    where a panel and its two halves disagree. Panels of doubling width cover the range beyond the outermost hints.
    """
    edges = _edges(low, high, hints)
    left, right = edges[:-1], edges[1:]
    total, error = 0.0, 0.0
    coarse = _panels(density, left, right)
    for depth in range(_DEPTH):
        middle = (left + right) / 2
        halves = _panels(density, torch.cat([left, middle]), torch.cat([middle, right])).view(2, -1)
        gap = (halves.sum(0) - coarse).abs()
        rough = (gap > 1e-7) & (middle > left) & (middle < right) & (depth < _DEPTH - 1)
        if int(rough.sum()) > 20_000:
            rough = torch.zeros_like(rough)
        total += float(halves.sum(0)[~rough].sum())
        error += float(gap[~rough].sum())
        if not rough.any():
            break
        left, right = torch.cat([left[rough], middle[rough]]), torch.cat([middle[rough], right[rough]])
        coarse = halves[:, rough].flatten()
    return total, error


def _edges(low: float, high: float, hints: Tensor) -> Tensor:
    inside = hints.flatten().double().clamp(low, high).unique()
    spread = max(float(inside[-1] - inside[0]), 1e-3 * float(inside.abs().max()), 1e-6)
    doubling = spread * 2.0 ** torch.arange(-20, 40, dtype=torch.float64, device=hints.device)
    edges = torch.cat([inside, inside[0] - doubling, inside[-1] + doubling]).clamp(low, high)
    ends = [end for end in (low, high) if abs(end) != float("inf")]
    return torch.cat([edges, edges.new_tensor(ends)]).unique()


def _panels(density: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    """Integrate from left (N,) to right (N,) with 8 points each, (N,)."""
    nodes, weights = _gauss_legendre(left.device)
    half = ((right - left) / 2).unsqueeze(1)
    points = (left + right).unsqueeze(1) / 2 + half * nodes
    heights = density(points.flatten()).view(points.shape).nan_to_num(nan=0.0, posinf=0.0)
    return (heights * weights * half).sum(1)


def _gauss_legendre(device: torch.device) -> tuple[Tensor, Tensor]:
    nodes, weights = numpy.polynomial.legendre.leggauss(8)
    return torch.from_numpy(nodes).to(device), torch.from_numpy(weights).to(device)


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
        return torch.eye(blocks, dtype=torch.float64, device=parameter.device).repeat(parameter.shape[0] // blocks, 1)
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
