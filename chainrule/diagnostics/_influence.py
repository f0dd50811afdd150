"""How long an input is remembered: its influence on later states, by the derivative and by changing it."""

import math

import torch
from torch import Tensor

from chainrule._modes import wide
from chainrule.diagnostics._derivatives import Passage
from chainrule.diagnostics._distance import THRESHOLD, steps_above
from chainrule.diagnostics._subject import Subject
from chainrule.layers._cells import project

ROWS, STARTS = 8, 4


def influence(
    subject: Subject, passages: list[Passage], generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    r"""How far a changed input moves each layer's state k steps later, on average, relative to its largest effect.

    .. math:: I_k = \overline{\lVert \Delta s_{t+k} \rVert} \,/\, \max_j \overline{\lVert \Delta s_{t+j} \rVert}

    The same changes are followed twice: by the derivative of every step, and by reading the changed input. A symbol is
    changed to another one, a feature vector by noise as large as the data's own spread. Changes are made at four steps
    of the first half of up to eight rows; s is h, for an LSTM [h, c].

    Returns:
        By the derivative, and by the change itself: for each layer (T,), float64; NaN at distances that no row has.
    """
    rows = torch.nonzero(subject.lengths >= 2).flatten()[:ROWS]
    subject = subject.select(rows)
    derivatives = [passage.derivative.each(lambda factor: factor[:, rows].unsqueeze(2)) for passage in passages]
    before, after, times = _changes(subject, generator)
    weights = [layer.all_weights[0] for layer in subject.layers]
    first, *rest = weights[0]
    shift = project(after, first, None) - project(before, first, None)  # (B·K, G·M)
    shift = shift.view(*times.shape, -1)
    unchanged = project(subject.features.flatten(0, 1), first, subject.layers[0].input_bias(rest))
    unchanged = unchanged.unflatten(0, subject.features.shape[:2])  # (B, T, G·M)
    by_derivative = torch.zeros(
        len(passages), subject.features.shape[1], *times.shape, dtype=torch.float64, device="cpu"
    )
    by_change = torch.zeros_like(by_derivative)
    moved = [d.weight_hh.new_zeros(*times.shape, d.state_size) for d in derivatives]
    changed = [tuple(part.repeat_interleave(times.shape[1], 0) for part in state) for state in subject.states]
    size = subject.output.shape[-1]
    for t in range(subject.features.shape[1]):
        here = times == t
        dp = shift * here.unsqueeze(-1)
        projected = unchanged[:, t].repeat_interleave(times.shape[1], 0) + dp.flatten(0, 1)
        for index, (layer, derivative) in enumerate(zip(subject.layers, derivatives, strict=True)):
            moved[index] = derivative[t].push(moved[index], dp)
            changed[index] = layer.cell(projected, weights[index][1:], list(changed[index]))
            passage = passages[index]
            parts = [passage.h] if passage.c is None else [passage.h, passage.c]
            own = torch.cat([part[t, rows] for part in parts], -1).unsqueeze(1)  # (B, 1, S)
            difference = torch.cat(changed[index], -1).view(*times.shape, -1) - own
            by_derivative[index, t] = wide(torch.linalg.vector_norm(moved[index], dim=-1))
            by_change[index, t] = wide(torch.linalg.vector_norm(difference, dim=-1))
            if index + 1 < len(subject.layers):
                weight_ih, *above = weights[index + 1]
                dp = moved[index][..., :size] @ weight_ih.t()
                projected = project(changed[index][0], weight_ih, subject.layers[index + 1].input_bias(above))
    return _by_distance(by_derivative, times, subject.lengths), _by_distance(by_change, times, subject.lengths)


def memory_length(curve: Tensor) -> float:
    """The number of steps after which an influence (T,) stays under 1%; infinite if it never does on this data.

    NaN where no input had any influence.
    """
    return steps_above(curve, THRESHOLD) or math.nan


def _changes(subject: Subject, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The changes: the inputs before and after, (B·K, ...), and their times, (B, K)."""
    parts = torch.linspace(0, 0.5, STARTS, device=subject.lengths.device)
    times = ((subject.lengths.unsqueeze(1) - 1) * parts).long()  # (B, K)
    rows = torch.arange(len(times), device=times.device).unsqueeze(1)
    before = subject.features[rows, times].flatten(0, 1)
    if subject.embed is not None and subject.symbols is not None:
        seen = subject.symbols[subject.real]
        draws = torch.randint(len(seen), (len(before),), generator=generator, device="cpu").to(seen.device)
        return before, subject.embed(seen[draws]), times
    if before.is_floating_point():
        spread = subject.features[subject.real].std(0)
        spread = torch.where(spread > 0, spread, spread.amax()) if spread.amax() > 0 else torch.ones_like(spread)
        noise = torch.randn(before.shape, generator=generator, dtype=torch.float64, device="cpu").to(before)
        return before, before + spread * noise, times
    seen = subject.features[subject.real].unique()
    if len(seen) < 2:
        seen = torch.arange(subject.layers[0].input_size, device=before.device)
    if len(seen) < 2:
        return before, before, times  # there is no other symbol
    others = torch.searchsorted(seen, before)
    others += torch.randint(1, len(seen), (len(before),), generator=generator, device="cpu").to(before.device)
    return before, seen[others % len(seen)], times


def _by_distance(norms: Tensor, times: Tensor, lengths: Tensor) -> list[Tensor]:
    """(L, T, B, K) by time → for each layer (T,) by distance from the change, relative to the largest.

    Each mean is divided by the mean peak of the same changes: fewer of them reach a larger distance, and those of the
    long rows may be the small ones.
    """
    time = norms.shape[1]
    at = torch.arange(time, device="cpu").view(-1, 1, 1) + times.cpu()  # (T, B, K)
    inside = at < lengths.cpu().view(-1, 1)
    curves = []
    for layer in norms:
        shifted = layer.cpu().gather(0, at.clamp(max=time - 1)).masked_fill(~inside, 0)
        peaks = (inside * shifted.amax(0)).sum((1, 2))
        mean = shifted.sum((1, 2)) / torch.where(peaks > 0, peaks, inside.sum((1, 2)))  # 0 / 0 where no row is so long
        largest = mean[~mean.isnan()].amax()
        curves.append(mean / (largest if largest > 0 else 1))
    return curves
