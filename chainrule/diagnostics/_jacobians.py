"""How much each step, and all steps up to a row's end, can stretch a change of the state."""

from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule._modes import wide, widest
from chainrule.diagnostics._derivatives import Derivative

EXACT = 64  # states up to this size have their Jacobians written out
ITERATIONS = 16  # of Lanczos' method on larger ones
BEGINNINGS = 4  # random directions that the search for their products starts from
ROUNDS = 2  # of subspace iteration for their products
NUMBERS = 2**21  # held by one array at a time
WRITTEN_OUT = 2**23  # numbers in all running products, up to which they are written out although states are larger


def jacobian_norms(derivative: Derivative, generator: torch.Generator) -> Tensor:
    r"""‖J_t‖, the largest singular value of ∂s_t/∂s_{t−1}, at every point. (T, B), float64.

    Up to 64 states by their matrices; beyond, by the bidiagonalisation of Golub and Kahan (1965), Lanczos' method:
    power iteration on JᵀJ that keeps the findings of its earlier products. It needs products with J_t and J_tᵀ alone,
    taken for all points at once, and approaches the norm from below.
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
    # J V = U B with B upper bidiagonal: the eigenvalues of the tridiagonal B Bᵀ are squares of singular values.
    gram = torch.diag_embed(alphas**2 + betas**2)
    neighbours = betas[..., :-1] * alphas[..., 1:]
    gram += torch.diag_embed(neighbours, 1) + torch.diag_embed(neighbours, -1)
    return _largest(gram)[0].sqrt()


def _start(derivative: Derivative, generator: torch.Generator) -> Tensor:
    """A first direction (S,): mostly the one that W_hh stretches most, as D_t W_hh will stretch one near it."""
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
    r"""‖J_n ⋯ J_{t+1}‖ = ‖∂s_n/∂s_t‖ for every t up to the row's last step n: 1 there. (T, B), float64.

    The product is never formed. A block of k directions at s_n is carried back, which gives (J_n ⋯ J_{t+1})ᵀ U at every
    t; its largest singular value is the norm if U contains the direction that the product stretches to. Where that is
    cheap, up to 64 states for one, U is the whole space, and the norms are exact. Beyond, U is found by subspace
    iteration: the product over each of the distances 2, 2.8, 4, ... 32, 128, ... is followed there and back, and
    the direction that it stretches to joins U. That approaches the norm from below, within a few per cent as a rule.

    derivative: at the points (T, B); norms: (T, B), from `jacobian_norms`; lengths: (B,).
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
    products = torch.where(time == lengths - 2, norms.roll(-1, 0), products)  # of one step, the norm is known
    return products.masked_fill(time >= lengths, 0)


def _leading_directions(derivative: Derivative, lengths: Tensor, generator: torch.Generator) -> Tensor:
    """The directions at each row's last state that products of many lengths stretch to, (B, k, S), orthonormal."""
    time, batch = derivative.points
    # Directions turn quickly at first and settle later, as a long product has one that outweighs all others.
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
    """t, (J_n ⋯ J_{t+1})ᵀ of the directions (B, k, S), and the log of its scale (B,), for every t, last first."""
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
    """The largest eigenvalue (R,) and its eigenvector (R, k) of positive semi-definite matrices (R, k, k).

    Squaring a matrix squares the ratios of its eigenvalues. After twenty times the largest is alone, or so near to the
    next that its Rayleigh quotient is right to 2e-7 all the same. LAPACK's routines take several times as long.
    """
    power = gram
    for _ in range(20):
        largest = power.diagonal(dim1=1, dim2=2).amax(1).view(-1, 1, 1)
        power = power / torch.where(largest > 0, largest, 1)
        power = power @ power
    column = power.diagonal(dim1=1, dim2=2).argmax(1).view(-1, 1, 1).expand(-1, gram.shape[1], 1)
    vector = _unit(power.gather(2, column).squeeze(2))[0]
    return torch.einsum("rk,rkl,rl->r", vector, gram, vector).clamp(min=0), vector


def products_of_bounds(bounds: Tensor, lengths: Tensor) -> Tensor:
    """The product of the bounds of steps t+1 … n, an upper bound of `running_products`, (T, B), float64."""
    past = torch.arange(len(bounds), device=lengths.device).unsqueeze(1) >= lengths
    logs = wide(bounds).log().masked_fill(past, 0)
    logs = torch.cat([logs[1:], torch.zeros_like(logs[:1])])
    return logs.flip(0).cumsum(0).flip(0).exp().masked_fill(past, 0)


def _for_block(factor: Tensor) -> Tensor:
    return factor.unsqueeze(-2)


def _orthonormal(block: Tensor) -> Tensor:
    """Orthonormal rows with the same span, (B, k, S)."""
    return torch.linalg.qr(block.transpose(1, 2)).Q.transpose(1, 2)


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """v / ‖v‖ and ‖v‖, (.., S) and (.., 1); zero stays zero."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return v / torch.where(norm > 0, norm, 1), norm
