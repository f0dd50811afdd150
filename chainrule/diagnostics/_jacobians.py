"""Norms of Jacobians and of their products, and the influence of inputs on later states."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule._modes import wide, widest
from chainrule.diagnostics._backpropagation import THRESHOLD, steps_above
from chainrule.diagnostics._derivatives import Derivative, Passage
from chainrule.diagnostics._subject import Subject
from chainrule.layers._cells import project

EXACT = 64  # state size up to which Jacobians are formed explicitly
ITERATIONS = 16  # Lanczos iterations for larger states
BEGINNINGS = 4  # random start directions for products
ROUNDS = 2  # rounds of subspace iteration for products
NUMBERS = 2**21  # maximum size of a temporary tensor
WRITTEN_OUT = 2**23  # size of all running products up to which they are formed explicitly for any state size


def jacobian_norms(derivative: Derivative, generator: torch.Generator) -> Tensor:
    r"""Return ‖J_t‖, the largest singular value of ∂s_t/∂s_{t−1}, at every point, (T, B), float64.

    Exact from the matrices for up to 64 states. For larger states, the bidiagonalisation of Golub and Kahan (1965),
    which needs only products with J_t and J_tᵀ, for all points at once, and approaches the norm from below.
    """
    points, size = derivative.points, derivative.state_size
    flat = derivative.each(lambda factor: factor.flatten(0, -2))
    wide = size * size if size <= EXACT else 2 * derivative.weight_hh.shape[0]
    chunk = max(1, NUMBERS // wide)
    norm = _by_matrices if size <= EXACT else _by_lanczos
    start = _start(derivative, generator)
    parts = [norm(flat[begin : begin + chunk], start) for begin in range(0, points.numel(), chunk)]
    return torch.cat(parts).view(points)


def _by_matrices(derivative: Derivative, start: Tensor) -> Tensor:
    eye = torch.eye(derivative.state_size, dtype=start.dtype, device=start.device)
    rows = derivative.points[0]
    matrices = derivative.each(lambda factor: factor.unsqueeze(1)).push(eye.expand(rows, -1, -1))
    matrices = wide(matrices)
    return _largest(matrices.transpose(1, 2) @ matrices)[0].sqrt()


def _by_lanczos(derivative: Derivative, start: Tensor) -> Tensor:
    v = start.expand(*derivative.points, -1)
    u, beta = torch.zeros_like(v), start.new_zeros(*derivative.points, 1)
    diagonal, above = [], []
    for _ in range(min(ITERATIONS, derivative.state_size)):
        u = derivative.push(v) - beta * u
        u, alpha = _unit(u)
        v = derivative.pull(u)[0] - alpha * v
        v, beta = _unit(v)
        diagonal.append(alpha)
        above.append(beta)
    alphas, betas = wide(torch.cat(diagonal, -1)), wide(torch.cat(above, -1))
    # J V = U B with B upper bidiagonal: the eigenvalues of the tridiagonal B Bᵀ are squared singular values.
    gram = torch.diag_embed(alphas**2 + betas**2)
    neighbours = betas[..., :-1] * alphas[..., 1:]
    gram += torch.diag_embed(neighbours, 1) + torch.diag_embed(neighbours, -1)
    return _largest(gram)[0].sqrt()


def _start(derivative: Derivative, generator: torch.Generator) -> Tensor:
    """Return a start direction (S,) near the one that W_hh stretches most, which D_t W_hh will stretch too."""
    weight, size = derivative.weight_hh, derivative.state_size
    noise = torch.randn(size, generator=generator, dtype=torch.float64, device="cpu").to(weight)
    noise /= noise.norm()
    noise[: weight.shape[1]] += _leading_direction(weight, noise[: weight.shape[1]])
    return noise / noise.norm()


def _leading_direction(weight: Tensor, v: Tensor) -> Tensor:
    for _ in range(ITERATIONS):
        v, _ = _unit(weight.t() @ (weight @ v))
    return v


def running_products(derivative: Derivative, norms: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
    r"""Return ‖J_n ⋯ J_{t+1}‖ = ‖∂s_n/∂s_t‖ for every t up to the row's last step n, (T, B), float64; 1 at n.

    The product is never formed. Carrying k directions U at s_n back gives (J_n ⋯ J_{t+1})ᵀ U at every t, whose largest
    singular value is the norm if U contains the product's leading direction. For up to 64 states, and for short data, U
    is the whole space and the norms are exact. Otherwise subspace iteration finds U: it follows the products over the
    distances 2, 2.8, 4, ... 32, 128, ... there and back, and adds their leading directions to U. The result approaches
    the norm from below, usually within a few per cent.
    """
    size = derivative.state_size
    if size <= EXACT or size * size * derivative.points.numel() <= WRITTEN_OUT:
        directions = torch.eye(size, dtype=derivative.weight_hh.dtype, device=lengths.device).expand(
            len(lengths), -1, -1
        )
    else:
        directions = _leading_directions(derivative, lengths, generator)
    squares, grams, scales = [], [], []
    for t, block, scale in _carried_back(derivative, lengths, directions):
        block = wide(block)
        grams.append(block @ block.transpose(1, 2))
        scales.append(scale)
        if t == 0 or len(grams) * grams[0].numel() > NUMBERS:
            squares.append(_largest(torch.cat(grams))[0])
            grams.clear()
    logs = torch.cat(squares).log().view(len(scales), -1) / 2 + torch.stack(scales)
    products = logs.flip(0).exp()
    time = torch.arange(len(products), device=lengths.device).unsqueeze(1)
    products = torch.where(time == lengths - 2, norms.roll(-1, 0), products)  # `norms` holds single steps
    return products.masked_fill(time >= lengths, 0)


def _leading_directions(derivative: Derivative, lengths: Tensor, generator: torch.Generator) -> Tensor:
    """Return the leading directions at each row's last state for products of many lengths, (B, k, S), orthonormal."""
    time, batch = derivative.points
    # Leading directions change quickly at short distances and hardly at long ones, where one direction dominates.
    wanted = [round(2 ** (power / 2)) for power in range(2, 11)] + [32 * 4**power for power in range(1, 9)]
    distances = torch.tensor(sorted({min(distance, time - 1) for distance in wanted}), device="cpu")
    anchors = (lengths.unsqueeze(1) - 1 - distances.to(lengths)).clamp(min=0)  # (B, A)
    block = torch.randn(
        batch, BEGINNINGS, derivative.state_size, generator=generator, dtype=torch.float64, device="cpu"
    )
    block = _orthonormal(block.to(derivative.weight_hh))
    shortest = int(lengths.min())
    for _ in range(ROUNDS):
        starts = block.new_zeros(batch, len(distances), derivative.state_size)
        for t, carried, _ in _carried_back(derivative, lengths, block):
            here = anchors == t
            if here.any():
                own = wide(carried)
                leading = (_largest(own @ own.transpose(1, 2))[1].unsqueeze(1) @ own).to(starts)  # (B, 1, S)
                starts = torch.where(here.unsqueeze(-1), leading, starts)
        vectors = torch.zeros_like(starts)
        for t in range(time):
            if t:
                moved = _unit(derivative[t].each(_for_block).push(vectors))[0]
                vectors = moved if t < shortest else torch.where((t < lengths).view(-1, 1, 1), moved, vectors)
            vectors = torch.where((anchors == t).unsqueeze(-1), starts, vectors)
        block = _orthonormal(torch.cat([vectors, block[:, :1]], 1))
    return block


def _carried_back(derivative: Derivative, lengths: Tensor, directions: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield t, the rescaled (J_n ⋯ J_{t+1})ᵀ U (B, k, S), and the log of its scale (B,), for every t, last first."""
    time = derivative.points[0]
    block, scale = directions, torch.zeros(len(directions), dtype=widest(directions.device), device=directions.device)
    for t in reversed(range(time)):
        if t < time - 1:
            inside = t + 1 < lengths
            pulled = derivative[t + 1].each(_for_block).pull(block)[0]
            largest = pulled.abs().amax((1, 2), keepdim=True)
            pulled = pulled / torch.where(largest > 0, largest, 1)
            block = torch.where(inside.view(-1, 1, 1), pulled, block)
            scale = scale + wide(largest.flatten()).log().masked_fill(~inside, 0)
        yield t, block, scale


def _largest(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalue (R,) and eigenvector (R, k) of positive semi-definite matrices (R, k, k)."""
    # Squaring a matrix squares the ratios of its eigenvalues. After twenty squarings the largest dominates, or is so
    # close to the next that the Rayleigh quotient is still right to 2e-7. LAPACK takes several times as long.
    power = gram
    for _ in range(20):
        largest = power.diagonal(dim1=1, dim2=2).amax(1).view(-1, 1, 1)
        power = power / torch.where(largest > 0, largest, 1)
        power = power @ power
    column = power.diagonal(dim1=1, dim2=2).argmax(1).view(-1, 1, 1).expand(-1, gram.shape[1], 1)
    vector = _unit(power.gather(2, column).squeeze(2))[0]
    return torch.einsum("rk,rkl,rl->r", vector, gram, vector).clamp(min=0), vector


def products_of_bounds(bounds: Tensor, lengths: Tensor) -> Tensor:
    """Multiply the bounds of steps t+1 … n, an upper bound of `running_products`, (T, B), float64."""
    past = torch.arange(len(bounds), device=lengths.device).unsqueeze(1) >= lengths
    logs = wide(bounds).log().masked_fill(past, 0)
    logs = torch.cat([logs[1:], torch.zeros_like(logs[:1])])
    return logs.flip(0).cumsum(0).flip(0).exp().masked_fill(past, 0)


def _for_block(factor: Tensor) -> Tensor:
    return factor.unsqueeze(-2)


def _orthonormal(block: Tensor) -> Tensor:
    """Return orthonormal rows with the same span, (B, k, S)."""
    return torch.linalg.qr(block.transpose(1, 2)).Q.transpose(1, 2)


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return v / ‖v‖ and ‖v‖, (.., S) and (.., 1); zero stays zero."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return v / torch.where(norm > 0, norm, 1), norm


ROWS, STARTS = 8, 4


def influence(
    subject: Subject, passages: list[Passage], generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    r"""Measure how far a changed input moves each layer's state k steps later, relative to its largest effect.

    .. math:: I_k = \overline{\lVert \Delta s_{t+k} \rVert} \,/\, \max_j \overline{\lVert \Delta s_{t+j} \rVert}

    It follows the same changes twice: by derivatives, and by reading the changed input. It replaces a symbol by
    another, and adds noise with the data's standard deviation to features, at four steps in the first half of up to
    eight rows; s is h, for an LSTM [h, c]. Results are (T,) for each layer, float64, and NaN at distances that no row
    has.
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
    """Return the steps after which an influence (T,) stays below 1%, or infinity; NaN without any influence."""
    return steps_above(curve, THRESHOLD) or math.nan


def _changes(subject: Subject, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs before and after the changes, (B·K, ...), and the times of the changes, (B, K)."""
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
    """Average norms (L, T, B, K) by the distance from the change, relative to the largest, (T,) for each layer."""
    time = norms.shape[1]
    at = torch.arange(time, device="cpu").view(-1, 1, 1) + times.cpu()  # (T, B, K)
    inside = at < lengths.cpu().view(-1, 1)
    curves = []
    for layer in norms:
        shifted = layer.cpu().gather(0, at.clamp(max=time - 1)).masked_fill(~inside, 0)
        # Divide by the mean peak of the same changes: few changes reach long distances, and they may be small ones.
        peaks = (inside * shifted.amax(0)).sum((1, 2))
        mean = shifted.sum((1, 2)) / torch.where(peaks > 0, peaks, inside.sum((1, 2)))  # NaN if no row is long enough
        largest = mean[~mean.isnan()].amax()
        curves.append(mean / (largest if largest > 0 else 1))
    return curves
