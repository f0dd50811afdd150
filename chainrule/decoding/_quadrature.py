"""Integrals of many rows at once: an adaptive Simpson rule over the normal scores of a mixture."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Scores at which intervals begin and end: fine where a normal variable is, and as far as float64 has its tails.
_INSIDE = [step / 2 for step in range(-8, 9)]
_OUTSIDE = [5.0, 6.0, 8.0, 12.0, 20.0, 36.0]
EDGES = [*(-edge for edge in reversed(_OUTSIDE)), *_INSIDE, *_OUTSIDE]
_HALVINGS = 40
_NEGLIGIBLE = 1e-3  # share of the tolerance below which an interval is not looked into
_STEPS = 100  # of the search for a quantile, at most

Integrand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Function of rows (M,) and scores (M,) that returns the values there and the logarithms of the integrand."""


def normal_scores(scores: Tensor, logits: Tensor, means: Tensor, log_scales: Tensor, *, normal: bool) -> Tensor:
    """Return x = F⁻¹(Φ(v)), (M,), of mixtures F of K normal, or logistic, components (M, K).

    The tail that a score is in is computed from its own side, so that scores up to ±37 have distinct values.
    """
    weights, scales = logits.softmax(-1), log_scales.clamp(-700, 700).exp()
    side = torch.where(scores < 0, -1.0, 1.0)
    log_tail = torch.special.log_ndtr(-scores.abs())
    reach = scores
    if not normal:
        reach = torch.special.log_ndtr(scores) - torch.special.log_ndtr(-scores)
    ends = means + scales * reach.unsqueeze(-1)
    low, high = ends.amin(-1), ends.amax(-1)
    found, left, before = (low + high) / 2, torch.arange(len(scores), device=scores.device), high - low
    for _ in range(_STEPS):
        x, sign = found[left], side[left]
        z = -sign.unsqueeze(-1) * (x.unsqueeze(-1) - means[left]) / scales[left]
        share, density = _normal_tail(z) if normal else (z.sigmoid(), z.sigmoid() * (-z).sigmoid())
        beyond = (weights[left] * share).sum(-1)
        excess = beyond.log() - log_tail[left]
        further = (excess > 0) == (sign > 0)  # the quantile is to the right
        low, high = torch.where(further, x, low), torch.where(further, high, x)
        newton = x + sign * excess * beyond / (weights[left] * density / scales[left]).sum(-1)
        # Bisection where the step of Newton's method leaves the interval, or is more than half of the one before.
        good = (newton >= low) & (newton <= high) & (2 * (newton - x).abs() <= before)
        new = torch.where(good, newton, (low + high) / 2)
        found[left], before = new, (new - x).abs()
        wide = before > 1e-11 * (new.abs() + scales[left].amin(-1))
        left, low, high, before = left[wide], low[wide], high[wide], before[wide]
        if not len(left):
            break
    return found


def _normal_tail(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return Φ(z) and φ(z). `torch.special.ndtr` has few digits below z = −6, and is 0 below −10."""
    density = (z.square() / -2).exp() / math.sqrt(2 * math.pi)
    tail = math.sqrt(math.pi / 2) * density * torch.special.erfcx(z.abs() / math.sqrt(2))
    return torch.where(z < 0, tail, 1 - tail), density


def integrate(integrand: Integrand, rows: int, device: torch.device, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Integrate a positive function of each row over all normal scores.

    .. math:: \int_a^b f \approx \frac{b - a}{6} \left(f(a) + 4 f\left(\tfrac{a + b}{2}\right) + f(b)\right)

    An interval is halved until both halves together differ from it by less than 15 · tolerance of the row's integral
    so far, divided by the number of intervals at the beginning (Lyness 1969).

    Returns:
        The values of the nodes (rows, N), three of each interval from left to right, so that those at its ends are
        there twice; the logarithms of their shares of the integral; and (rows,) the sum of the estimated errors as a
        share of the integral. Rows with fewer nodes end in shares of 0.
    """
    edges = torch.tensor(EDGES, dtype=torch.float64, device=device)
    centres = (edges[:-1] + edges[1:]) / 2
    first = torch.cat([edges, centres])
    every = torch.arange(rows, device=device)
    values, logs = integrand(every.repeat_interleave(len(first)), first.repeat(rows))
    values, logs = values.view(rows, -1), logs.view(rows, -1)
    ends, count = len(edges), len(centres)
    row = every.repeat_interleave(count)
    width = (edges[1:] - edges[:-1]).repeat(rows)
    start = edges[:-1].repeat(rows)
    # Three nodes of each interval: its ends and its centre.
    node_values = torch.stack([values[:, : ends - 1], values[:, ends:], values[:, 1:ends]], -1).view(-1, 3)
    node_logs = torch.stack([logs[:, : ends - 1], logs[:, ends:], logs[:, 1:ends]], -1).view(-1, 3)
    peak = logs.amax(1)
    done: list[tuple[Tensor, ...]] = []  # rows, starts of intervals, values and log-shares of nodes
    total = torch.zeros(rows, dtype=torch.float64, device=device)  # of the intervals that are done, times e^-peak
    error = torch.zeros_like(total)
    simpson = torch.tensor([1.0, 4.0, 1.0], dtype=torch.float64, device=device) / 6
    level = tolerance / count

    def keep(which: Tensor, starts: Tensor, values: Tensor, logs: Tensor, widths: Tensor) -> None:
        """Take the nodes of finished intervals, three each, with their weights in Simpson's rule."""
        shares = logs + (widths.unsqueeze(1) * simpson).log()
        done.append((*(part.repeat_interleave(3) for part in (which, starts)), values.flatten(), shares.flatten()))

    for _ in range(_HALVINGS):
        if not len(row):
            break
        heights = (node_logs - peak[row].unsqueeze(1)).exp()
        sums = width * (heights * simpson).sum(1)
        whole = total.index_add(0, row, sums).clamp_min(torch.finfo(torch.float64).tiny)
        low = width * heights.amax(1) <= _NEGLIGIBLE * level * whole[row]
        keep(row[low], start[low], node_values[low], node_logs[low], width[low])
        total = total.index_add(0, row[low], sums[low])
        row, start, width = row[~low], start[~low], width[~low]
        node_values, node_logs, sums = node_values[~low], node_logs[~low], sums[~low]
        if not len(row):
            break
        quarters = torch.stack([start + width / 4, start + 3 * width / 4], 1)
        more_values, more_logs = (part.view(-1, 2) for part in integrand(row.repeat_interleave(2), quarters.flatten()))
        five_values = torch.stack(
            [node_values[:, 0], more_values[:, 0], node_values[:, 1], more_values[:, 1], node_values[:, 2]], 1
        )
        five_logs = torch.stack(
            [node_logs[:, 0], more_logs[:, 0], node_logs[:, 1], more_logs[:, 1], node_logs[:, 2]], 1
        )
        higher = torch.maximum(
            peak, torch.full_like(peak, -torch.inf).scatter_reduce(0, row, five_logs.amax(1), "amax")
        )
        shift = (peak - higher).exp()
        total, error, sums, peak = total * shift, error * shift, sums * shift[row], higher
        heights = (five_logs - peak[row].unsqueeze(1)).exp()
        halves = torch.stack([heights[:, :3], heights[:, 2:]], 1) @ simpson * (width / 2).unsqueeze(1)
        both = halves.sum(1)
        whole = total.index_add(0, row, both).clamp_min(torch.finfo(torch.float64).tiny)
        wrong = (both - sums).abs() / 15
        good = wrong <= level * whole[row]
        halves_of = row[good].repeat_interleave(2), _halves(start[good], width[good] / 2)
        keep(*halves_of, _both(five_values[good]), _both(five_logs[good]), width[good].repeat_interleave(2) / 2)
        total = total.index_add(0, row[good], both[good])
        error = error.index_add(0, row[good], wrong[good])
        row = row[~good].repeat_interleave(2)
        width = (width[~good] / 2).repeat_interleave(2)
        start = _halves(start[~good], width[::2])
        node_values, node_logs = _both(five_values[~good]), _both(five_logs[~good])
    if len(row):  # a jump, halved until nothing of it is left
        heights = (node_logs - peak[row].unsqueeze(1)).exp()
        sums = width * (heights * simpson).sum(1)
        keep(row, start, node_values, node_logs, width)
        total, error = total.index_add(0, row, sums), error.index_add(0, row, sums)
    return (*_padded(done, rows), error / total)


def _halves(start: Tensor, width: Tensor) -> Tensor:
    """Return where both halves of intervals begin."""
    return torch.stack([start, start + width], 1).flatten()


def _both(five: Tensor) -> Tensor:
    """Return the nodes of both halves of intervals, three each."""
    return torch.stack([five[:, :3], five[:, 2:]], 1).view(-1, 3)


def _padded(done: list[tuple[Tensor, ...]], rows: int) -> tuple[Tensor, Tensor]:
    """Lay the nodes of each row side by side; shares of 0 at the row's last node fill the shorter ones."""
    row, starts, values, logs = (torch.cat(parts) for parts in zip(*done, strict=True))
    order = starts.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    row, values, logs = row[order], values[order], logs[order]
    counts = torch.bincount(row, minlength=rows)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(row), device=row.device) - starts[row]
    most = int(counts.max()) if rows else 0
    padded = values[starts + counts - 1].unsqueeze(1).repeat(1, most) if rows else values.view(0, 0)
    padded[row, place] = values
    shares = torch.full((rows, most), -math.inf, dtype=logs.dtype, device=logs.device)
    shares[row, place] = logs
    return padded, shares
