"""Backpropagation through time by its equations, and the norms of its Jacobians and of their products."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule.diagnostics._derivatives import Derivative, Passage
from chainrule.diagnostics._subject import Loss, Subject, replay, subject_of
from chainrule.modes import wide, widest
from chainrule.state import State

THRESHOLD = 0.01  # share of its largest value below which a gradient or an influence counts as vanished


def gradient_norms(gradient: Tensor) -> Tensor:
    """Return Euclidean norms of gradients, (..., M) → (...), float64 on the CPU; infinite if they overflowed.

    After an overflow, products of infinity and zero make the gradient NaN.

    >>> gradient_norms(torch.tensor([[3.0, 4.0], [torch.inf, 1.0], [torch.nan, 0.0]]))
    tensor([5., inf, inf], dtype=torch.float64)
    """
    norms = torch.linalg.vector_norm(gradient.cpu().double(), dim=-1)
    return norms.masked_fill(norms.isnan(), math.inf)


def by_distance(values: Tensor, lengths: Tensor) -> Tensor:
    """Average values k steps before each row's last step over rows, (B, T) → (T,), float64 on the CPU.

    NaN values are ignored; distances that no row has give NaN.
    """
    values, lengths = values.cpu().double(), lengths.cpu()
    at = lengths.unsqueeze(1) - 1 - torch.arange(values.shape[1], device="cpu")
    there = values.gather(1, at.clamp(min=0)).masked_fill(at < 0, math.nan)
    return there.nanmean(0)


def reach(profile: Tensor) -> float:
    """Return the steps after which a profile (T,) stays below 1% of its value at distance 0, or infinity.

    NaN if the value at distance 0 is not positive.
    """
    return steps_above(profile, THRESHOLD * float(profile[0])) if profile[0] > 0 else math.nan


def steps_above(curve: Tensor, level: float) -> float:
    """Return the steps after which a curve (T,), padded with NaN, stays below a level, or infinity."""
    values = curve[~curve.isnan()]
    above = torch.nonzero(values >= level).flatten()
    steps = int(above[-1]) + 1 if len(above) else 0
    return math.inf if steps == len(values) else float(steps)


@dataclass(frozen=True)
class Backpropagation:
    """Gradients of a loss at every step; lists are over layers, bottom first, tensors batch first.

    Args:
        delta: δ_t = ∂L/∂h_t, the total gradient at h_t, (B, T, M); zero in padding.
        local: g_t, the part from step t itself: from the loss at the top layer, from the layer above elsewhere.
        delta_cell: ∂L/∂c_t, (B, T, M); empty for layers without cells.
        weight_gradients: ∂L/∂W by torch.nn's parameter names, `weight_hh_l0`...
        loss: L, summed over rows; nats for a model.
        lengths: (B,) lengths of the rows.
        replay_error: maximum difference between the replayed h_t and the module's output.
    """

    delta: list[Tensor]
    local: list[Tensor]
    delta_cell: list[Tensor]
    weight_gradients: dict[str, Tensor]
    loss: float
    lengths: Tensor
    replay_error: float


def backpropagate(
    module: nn.Module,
    x: Tensor,
    loss: Loss = "last",
    lengths: Tensor | None = None,
    *,
    state: State = None,
    x_prev: Tensor | None = None,
) -> Backpropagation:
    r"""Backpropagate through time (Werbos 1990), and return the gradient at every step, which fused kernels hide.

    .. math::
        \delta_t = g_t + J_{t+1}^\top \delta_{t+1}, \qquad
        \partial L/\partial W_{hh} = \sum_t (D_t \delta_t) h_{t-1}^\top

    The loss is a sum over rows: results of a row do not depend on other rows.

    Args:
        module: a layer of `chainrule.layers` or `torch.nn` (RNN, LSTM, GRU; not bidirectional), or a `RecurrentLM`,
            possibly as the network of a `CalibratedMixture` or the first member of an `Ensemble`; runs without dropout.
        x: (B, T, N) features, or (B, T) integers for chainrule's layers and models; for a module of torch.nn, in the
            layout that it reads.
        loss: "last" for the loss of the last step, "mean" for the average over steps: Σ h_t² for a bare layer,
            −log p(x_t | x_{<t}) for a model. A function maps the top layer's h (B, T, M) to a scalar.
        lengths: (B,) lengths of the rows.
        state: initial state as the module returns it; zeros if `None`.
        x_prev: for a model, (B,) the element before x; `None` at the start of a sequence.

    Raises:
        ValueError: the module has no supported recurrence or a weight is not finite, or x has a wrong shape or fewer
            than two steps.

    >>> layer = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
    >>> _ = layer.weight_hh_l0.data.fill_(0.5), layer.weight_ih_l0.data.fill_(1.0)
    >>> backpropagate(layer, torch.ones(1, 3, 1)).delta[0].flatten().tolist()  # 2 h_3 · (0.5², 0.5, 1)
    [0.875, 1.75, 3.5]
    """
    subject = subject_of(module, x, lengths, state, x_prev)
    with torch.no_grad():
        passages, inputs, error = replay(subject)
        local, value = subject.local_gradient(loss)
        *gradients, weights = run_back(subject, passages, inputs, local)
    delta, locals_, cells = ([each.transpose(0, 1) for each in layers] for layers in gradients)
    return Backpropagation(delta, locals_, cells, weights, value, subject.lengths, error)


def run_back(
    subject: Subject, passages: list[Passage], inputs: list[Tensor], local: Tensor
) -> tuple[list[Tensor], list[Tensor], list[Tensor], dict[str, Tensor]]:
    """Carry the local gradient at the top (B, T, M) down: δ_t, g_t and ∂L/∂c_t per layer (T, B, M), and ∂L/∂W."""
    deltas: list[Tensor] = []
    locals_: list[Tensor] = []
    cells: list[Tensor] = []
    gradients = {}
    g = local.transpose(0, 1)
    for index in reversed(range(len(passages))):
        passage = passages[index]
        delta = _through_time(passage, g)
        _, d, d_recurrent = passage.derivative.pull(delta)  # D_t δ_t of all steps, so that sums over t are one product
        weight_ih = subject.layers[index].weight_ih_l0
        gradients[f"weight_ih_l{index}"] = _input_gradient(d, inputs[index], weight_ih.shape[1])
        gradients[f"weight_hh_l{index}"] = passage.derivative.weight_gradient(d_recurrent, passage.h_before)
        if subject.layers[index].bias:
            gradients[f"bias_ih_l{index}"] = d.sum((0, 1))
            gradients[f"bias_hh_l{index}"] = d_recurrent.sum((0, 1))
        whole = passage.derivative.whole_gradient(delta)
        deltas.insert(0, whole[..., : g.shape[-1]])
        locals_.insert(0, g)
        if whole.shape[-1] > g.shape[-1]:
            cells.insert(0, whole[..., g.shape[-1] :])
        if index:
            g = d @ weight_ih  # to the layer below, at the same step
    return deltas, locals_, cells, gradients


def _through_time(passage: Passage, local: Tensor) -> Tensor:
    """Compute δ_t = g_t + J_{t+1}ᵀ δ_{t+1} for all t, last first, from local (T, B, M) to (T, B, S)."""
    derivative = passage.derivative
    delta = local.new_zeros(*local.shape[:2], derivative.state_size)
    delta[..., : local.shape[-1]] = local
    for t in reversed(range(len(local) - 1)):
        delta[t] += derivative[t + 1].pull(delta[t + 1])[0]
    return delta


def _input_gradient(d: Tensor, x: Tensor, input_size: int) -> Tensor:
    """Return ∂L/∂W_ih = Σ_t (D_t δ_t) x_tᵀ, (G·M, N); integers stand for one-hot vectors."""
    if x.is_floating_point():
        return d.flatten(0, 1).t() @ x.flatten(0, 1)
    return d.new_zeros(input_size, d.shape[-1]).index_add_(0, x.flatten(), d.flatten(0, 1)).t()


def gradient_profile(
    module: nn.Module, x: Tensor, lengths: Tensor | None = None, state: State = None, x_prev: Tensor | None = None
) -> list[Tensor]:
    r"""Return the gradient norm of each layer by the distance to the loss of the last step (Pascanu et al. 2013).

    .. math:: p_k = \lVert \delta_{n-k} \rVert = \lVert \partial \ell_n / \partial h_{n-k} \rVert, \qquad 0 \le k < n

    Pass it to `chainrule.training.train(..., watch=gradient_profile)` to monitor training.

    Args:
        module: module for `backpropagate`; runs without dropout, and is not changed.
        x: (B, T) integers, or (B, T, N) features for a bare layer.
        lengths: (B,) lengths n of the rows; default T.
        state: initial state; zeros if `None`.
        x_prev: for a model, (B,) the element before x; `None` at the start of a sequence.

    Returns:
        p_k of every row, (B, T) for each layer, bottom first; zero for k ≥ n.

    >>> layer = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
    >>> _ = layer.weight_hh_l0.data.fill_(0.5), layer.weight_ih_l0.data.fill_(1.0)
    >>> gradient_profile(layer, torch.ones(1, 3, 1))  # 2 h_3 · (1, 0.5, 0.5²)
    [tensor([[3.5000, 1.7500, 0.8750]])]
    """
    flow = backpropagate(module, x, "last", lengths, state=state, x_prev=x_prev)
    time = flow.delta[0].shape[1]
    from_the_end = flow.lengths.unsqueeze(1) - 1 - torch.arange(time, device=x.device)  # (B, T), negative for k >= n
    norms = [torch.linalg.vector_norm(delta, dim=-1) for delta in flow.delta]
    return [norm.gather(1, from_the_end.clamp(min=0)) * (from_the_end >= 0) for norm in norms]


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
    shortest, first = int(lengths.min()), anchors.amin(0).cpu()
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
                begun = int((first >= t).sum())  # the longest distances begin first; all others are still zero
                moved = _unit(derivative[t].each(_for_block).push(vectors[:, begun:]))[0]
                moved = torch.cat([vectors[:, :begun], moved], 1)
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
