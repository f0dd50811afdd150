"""Continuations of a row from one reading of its context, and unknown elements wherever they are."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._ranges import check_sizes
from chainrule.heads._adapter import head_of
from chainrule.modes import device_of, in_evaluation, wide, widest
from chainrule.state import count_rows, expand, map_state, select


@dataclass(frozen=True)
class Completed:
    """The result of `complete`.

    Args:
        x: (B, T) the sequences, known elements as they were given, in a dtype that holds them and the draws.
        log_evidence: (B,) an estimate of log p(known | c), nats: exact where no known element comes after an unknown
            one.
        effective_particles: (B,) on how many equally weighted draws the completion rests: the fewest of any
            resampling and of the last choice. Few of many say that the known elements were improbable after those
            drawn before them: use more particles.
    """

    x: Tensor
    log_evidence: Tensor
    effective_particles: Tensor


@in_evaluation
@torch.no_grad()
def complete(
    model: AutoregressiveModel,
    x: Tensor,
    known: Tensor,
    context: Context = None,
    *,
    particles: int = 256,
    generator: torch.Generator | None = None,
) -> Completed:
    r"""Draw the unknown elements from p(unknown | known, c), by sequential importance resampling.

    .. math:: x^{(i)}_t \sim p(\cdot \mid x^{(i)}_{<t}, c) \text{ where unknown}, \quad
        w^{(i)} \leftarrow w^{(i)}\, p(x_t \mid x^{(i)}_{<t}, c) \text{ where known}

    Particles are resampled in proportion to their weights when these become uneven (effective number under a half).
    Where all known elements come first, all weights are equal: the draw is exact, as in `model.sample(prefix=...)`,
    and one particle is enough. Elsewhere it becomes exact as particles grow.

    Args:
        model: any model with a fixed or an open length.
        x: (B, T) in visiting order, as `model.to_sequence` makes it; values at unknown places are not read.
        known: (B, T) booleans.
        context: the condition of each row.
        particles: for each row.
        generator: source of randomness; the same seed gives the same completion.

    Returns:
        A completion of each row, its log-evidence and the effective number of particles.

    Raises:
        ValueError: the shapes do not agree, or the known elements are impossible under the model.

    Source: N. Gordon, D. Salmond and A. Smith, Novel approach to nonlinear and non-Gaussian Bayesian state
    estimation, 1993.

    >>> from chainrule.models import MADE
    >>> model = MADE(4, [16])
    >>> x = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    >>> known = torch.tensor([[False, False, True, True]])
    >>> complete(model, x, known, generator=torch.Generator().manual_seed(0)).x[:, 2:]
    tensor([[1., 1.]])
    """
    if x.dim() != 2 or known.shape != x.shape or known.dtype != torch.bool:
        raise ValueError(
            f"known: expected booleans of the shape of x, (B, T), got {tuple(known.shape)} of {known.dtype} "
            f"with x {tuple(x.shape)}"
        )
    found = draw_particles(model, x, known, context, particles=particles, generator=generator)
    chosen = _one_of_each(found.log_weights, generator)
    return Completed(found.x[chosen], found.log_evidence, found.effective)


@dataclass(frozen=True)
class Particles:
    """Weighted draws of the unknown elements of rows."""

    x: Tensor  # (rows * particles, T) in visiting order
    log_weights: Tensor  # (rows, particles), in any normalisation
    log_evidence: Tensor  # (rows,)
    effective: Tensor  # (rows,) the fewest equally weighted draws of any resampling and of the last weights


def draw_particles(
    model: AutoregressiveModel,
    x: Tensor,
    known: Tensor,
    context: Context = None,
    *,
    particles: int,
    generator: torch.Generator | None,
) -> Particles:
    """Draw unknown elements by sequential importance resampling; see `complete`."""
    check_sizes(particles=particles)
    rows, time = x.shape
    device = device_of(model)
    x, known = x.to(device), known.to(device)
    if not rows:  # not every model can step with zero rows
        none = torch.zeros(0, dtype=widest(device), device=device)
        return Particles(x, none.view(0, particles), none, none)
    spread = torch.arange(rows, device=device).repeat_interleave(particles)
    if context is not None:
        context = select(expand(map_state(lambda leaf: leaf.to(device), context), rows), spread)
    step, state = model.prepare().step, model.initial_state(rows * particles, context)
    drawn = x.new_empty(rows * particles, 0)
    log_weights = torch.zeros(rows, particles, dtype=widest(device), device=device)
    log_evidence = torch.zeros(rows, dtype=widest(device), device=device)
    fewest = torch.full_like(log_evidence, particles)
    x_prev = None
    for t in range(time):
        conditional, state = step(x_prev, state)
        observed = known[:, t].repeat_interleave(particles)
        x_prev = x[:, t].repeat_interleave(particles)
        if not observed.all():
            drawn_now = head_of(conditional).sample(generator=generator)
            x_prev = torch.where(observed, x_prev, drawn_now)  # in a dtype that holds both
        if observed.any():
            log_prob = wide(conditional.log_prob(x_prev)).masked_fill(~observed, 0.0)
            log_weights = log_weights + log_prob.view(rows, particles)
            impossible = ~log_weights.isfinite().any(1)
            if impossible.any():
                row = int(impossible.nonzero()[0])
                raise ValueError(
                    f"x: row {row}: the known elements up to {t} are impossible after any of the {particles} draws: "
                    "expected values that the model can draw; more particles may find some"
                )
        drawn = torch.cat([drawn, x_prev.unsqueeze(1)], 1)
        if t < time - 1 and bool((_effective(log_weights) < particles / 2).any()):
            log_evidence = log_evidence + _mean(log_weights)
            fewest = fewest.minimum(_effective(log_weights))  # resampled weights are equal and show it no more
            parents = resampled(log_weights, generator)
            state, drawn, x_prev = select(state, parents), drawn[parents], x_prev[parents]
            log_weights = torch.zeros_like(log_weights)
    effective = fewest.minimum(_effective(log_weights))
    return Particles(drawn, log_weights, log_evidence + _mean(log_weights), effective)


def _effective(log_weights: Tensor) -> Tensor:
    """(rows,), 1 / sum of squared normalised weights (Kong 1992)."""
    return 1 / log_weights.softmax(1).square().sum(1)


def _mean(log_weights: Tensor) -> Tensor:
    return log_weights.logsumexp(1) - math.log(log_weights.shape[1])


def resampled(log_weights: Tensor, generator: torch.Generator | None, draws: int | None = None) -> Tensor:
    """(rows * draws,) the parents: systematic resampling, row by row, a particle about as often as it weighs.

    By default, one for each particle.
    """
    rows, particles = log_weights.shape
    draws = particles if draws is None else draws
    start = torch.rand(rows, 1, dtype=widest(log_weights.device), device=log_weights.device, generator=generator)
    places = (start + torch.arange(draws, device=log_weights.device)) / draws
    parents = torch.searchsorted(log_weights.softmax(1).cumsum(1), places).clamp_(max=particles - 1)
    return (parents + particles * torch.arange(rows, device=parents.device).unsqueeze(1)).flatten()


def _one_of_each(log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """(rows,) a particle of each row, in proportion to its weight."""
    rows, particles = log_weights.shape
    if particles == 1:
        return torch.arange(rows, device=log_weights.device)
    picked = torch.multinomial(log_weights.softmax(1), 1, generator=generator).squeeze(1)
    return picked + particles * torch.arange(rows, device=picked.device)


@in_evaluation
@torch.no_grad()
def sample_paths(
    model: AutoregressiveModel,
    context: Context,
    *,
    paths: int,
    length: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw several sequences for each row of a context: it is read once, and its state is forked.

    `model.sample` with each row of the context repeated draws from the same distribution, but reads it for every path.

    Args:
        model: any model of the contract.
        context: the condition of each of B rows, batch first.
        paths: sequences for each row.
        length: elements of each sequence.
        generator: source of randomness; the same seed gives the same paths.

    Returns:
        (B, paths, length) and the shape of an element.

    Raises:
        ValueError: `paths` or `length` is below 1, or the context has no rows.

    >>> from chainrule.models import WaveNet
    >>> model = WaveNet(levels=4, channels=4, layers_per_block=2, skip_channels=4, num_classes=3)
    >>> sample_paths(model, torch.tensor([0, 2]), paths=5, length=7).shape
    torch.Size([2, 5, 7])
    """
    check_sizes(paths=paths, length=length)
    device = device_of(model)
    rows = count_rows(context)
    if not rows:
        raise ValueError("context: expected at least one row, got none")
    expanded = expand(map_state(lambda leaf: leaf.to(device), context), rows)
    forks = torch.arange(rows, device=device).repeat_interleave(paths)
    state = select(model.initial_state(rows, expanded), forks)
    step, x_prev, elements = model.prepare().step, None, []
    for _ in range(length):
        conditional, state = step(x_prev, state)
        x_prev = head_of(conditional).sample(generator=generator)
        elements.append(x_prev)
    return torch.stack(elements, 1).unflatten(0, (rows, paths))
