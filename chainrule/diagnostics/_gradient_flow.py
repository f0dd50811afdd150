"""The flow of gradients back through a recurrence: gradients, Jacobians and their products at every step."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.diagnostics._backpropagation import (
    THRESHOLD,
    by_distance,
    gradient_norms,
    jacobian_norms,
    products_of_bounds,
    run_back,
    running_products,
    steps_above,
)
from chainrule.diagnostics._backpropagation import reach as reach_of
from chainrule.diagnostics._derivatives import Passage
from chainrule.diagnostics._subject import Loss, Subject, replay, subject_of
from chainrule.figures import Array, draw_every, draw_influence, draw_jacobians, draw_last, stacked
from chainrule.layers._cells import project
from chainrule.modes import wide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class GradientFlow:
    """Gradients of a loss through time, and their growth per step; lists are over layers, bottom first.

    Tensors are batch first, zero in padding, and NaN in the rows of `nonfinite`. Norms are float64. A gradient that
    overflows stays infinite or NaN for all earlier steps.

    Args:
        loss: "last", "mean" or "function".
        value: the loss, summed over rows; nats for a model.
        lengths: (B,) lengths of the rows.
        delta: δ_t = ∂L/∂h_t, (B, T, M).
        local: g_t, the part from step t itself, (B, T, M).
        delta_cell: ∂L/∂c_t, (B, T, M); empty for layers without cells.
        jacobian_norms: ‖J_t‖ of J_t = ∂s_t/∂s_{t−1}, the largest singular value, (B, T); s is h, for an LSTM [h, c].
        product_norms: ‖∂s_n/∂s_t‖ = ‖J_n ⋯ J_{t+1}‖ up to the row's last step n, (B, T).
        bound: upper bound from norms: the product of ‖D_j‖‖W_hh‖, plus the path past W_hh in gates, (B, T).
        spectral_radius: largest modulus of an eigenvalue of W_hh; in gated cells, of the candidate's rows.
        spectral_norm: ‖W_hh‖ of all gates together.
        influence: influence of an input on the state k steps later, by the derivative, relative to its maximum, (T,).
        influence_perturbed: the same by changing the input.
        memory_length: steps after which `influence` stays below 1%, or infinity.
        memory_length_perturbed: the same for `influence_perturbed`.
        weight_gradients: ∂L/∂W by torch.nn's parameter names, over finite rows.
        gates: each gate by name, and "hidden" and "cell" for h and c, (B, T, M).
        nonfinite: (row, step) of the first non-finite input or output of each row that has one.
        replay_error: maximum difference between the replayed h_t and the module's output.
    """

    loss: str
    value: float
    lengths: Tensor
    delta: list[Tensor]
    local: list[Tensor]
    delta_cell: list[Tensor]
    jacobian_norms: list[Tensor]
    product_norms: list[Tensor]
    bound: list[Tensor]
    spectral_radius: list[float]
    spectral_norm: list[float]
    influence: list[Tensor]
    influence_perturbed: list[Tensor]
    memory_length: list[float]
    memory_length_perturbed: list[float]
    weight_gradients: dict[str, Tensor]
    gates: list[dict[str, Tensor]]
    nonfinite: list[tuple[int, int]]
    replay_error: float

    def plot(self) -> "list[Figure]":
        """Plot gradients by the distance to the loss, Jacobians, and the influence of inputs, with matplotlib."""
        return flow_figures(self)


def flow_figures(flow: GradientFlow) -> "list[Figure]":
    """Draw three figures, with a panel per layer: gradients, Jacobians and their products, influence of inputs."""

    def profile(values: Tensor) -> Array:
        return np.asarray(by_distance(values, flow.lengths))

    finite = [row for row in range(len(flow.lengths)) if row not in dict(flow.nonfinite)]

    def norms(gradient: Tensor) -> Array:
        return np.asarray(by_distance(gradient_norms(gradient[finite]), flow.lengths[finite]))

    def gradients(axes: "Axes", layer: int) -> None:
        delta, local = norms(flow.delta[layer]), norms(flow.local[layer])
        if flow.loss == "last":
            cell = norms(flow.delta_cell[layer]) if flow.delta_cell else None
            furthest = max(reach_of(torch.from_numpy(each)) for each in (delta, cell) if each is not None)
            draw_last(axes, delta, local, furthest, cell)
        else:
            draw_every(axes, delta, local)

    def jacobians(axes: "Axes", layer: int) -> None:
        norm, product, bound = flow.jacobian_norms[layer], flow.product_norms[layer], flow.bound[layer]
        draw_jacobians(axes, profile(norm), profile(product), profile(bound))

    def influence(axes: "Axes", layer: int) -> None:
        derivative, perturbed = np.asarray(flow.influence[layer]), np.asarray(flow.influence_perturbed[layer])
        draw_influence(axes, derivative, perturbed, (flow.memory_length[layer], flow.memory_length_perturbed[layer]))

    count = len(flow.delta)
    return [
        stacked(count, gradients, f"gradients, loss: {flow.loss}"),
        stacked(count, jacobians, "Jacobians"),
        stacked(count, influence, "influence of inputs"),
    ]


def gradient_flow(
    module: nn.Module, x: Tensor, loss: Loss = "last", lengths: Tensor | None = None, *, seed: int = 0
) -> GradientFlow:
    r"""Follow a loss back through a recurrence on real data (Hochreiter 1991, Pascanu et al. 2013).

    .. math::
        \delta_t = g_t + J_{t+1}^\top \delta_{t+1}, \qquad
        \lVert \delta_t \rVert \le \sum_{k \ge t} \lVert g_k \rVert \prod_{j=t+1}^{k} \lVert J_j \rVert, \qquad
        \lVert J_j \rVert \le \lVert D_j \rVert \lVert W_{hh} \rVert

    Fused kernels expose no gradients of single steps, so this function replays every step from the module's own states
    and verifies the replay. Rows are independent; a row with a non-finite number is reported in `nonfinite` and
    excluded from averages over rows.

    Args:
        module: a layer of `chainrule.layers` or `torch.nn` (RNN, LSTM, GRU; not bidirectional), or a `RecurrentLM`,
            possibly as the network of a `CalibratedMixture` or the first member of an `Ensemble`; runs without dropout,
            and is not changed.
        x: (B, T, N) features, or (B, T) integers for chainrule's layers and models; for a module of torch.nn, in the
            layout that it reads.
        loss: "last" for the loss of the last step, "mean" for the average over steps: Σ h_t² for a bare layer,
            −log p(x_t | x_{<t}), nats, for a model. A function maps the top layer's h (B, T, M) to a scalar.
        lengths: (B,) lengths of the rows.
        seed: seed of the start directions for norms of large states, and of the changes of inputs.

    Raises:
        ValueError: the module has no supported recurrence or a weight is not finite, or x has a wrong shape, fewer than
            two steps or no finite row.

    >>> layer = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
    >>> _ = layer.weight_hh_l0.data.fill_(0.5), layer.weight_ih_l0.data.fill_(1.0)
    >>> flow = gradient_flow(layer, torch.ones(1, 21, 1))
    >>> delta = flow.delta[0].norm(dim=-1)[0]
    >>> f"{delta[0] / delta[-1]:.1e}", flow.memory_length
    ('9.5e-07', [7.0])
    """
    whole = subject_of(module, x, lengths)
    nonfinite = _nonfinite(whole)
    bad = {row for row, _ in nonfinite}
    good = torch.tensor(
        [row for row in range(len(whole.lengths)) if row not in bad], dtype=torch.long, device="cpu"
    ).to(x.device)
    if not len(good):
        row, step = nonfinite[0]
        raise ValueError(f"x: no row is finite; row {row} is the first, at step {step}")
    subject = whole.select(good)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        passages, inputs, error = replay(subject)
        local, value = _finite_part(whole, good).local_gradient(loss)
        deltas, locals_, cells, weights = run_back(subject, passages, inputs, local[good])
        by_derivative, by_change = influence(subject, passages, generator)
        past = ~subject.real.t()
        jacobians = [jacobian_norms(p.derivative, generator).masked_fill(past, 0) for p in passages]
        products = [
            running_products(p.derivative, norms, subject.lengths, generator)
            for p, norms in zip(passages, jacobians, strict=True)
        ]
        bounds = [products_of_bounds(p.derivative.bound(), subject.lengths) for p in passages]

    def rows(arrays: list[Tensor]) -> list[Tensor]:
        """Convert (T, B', ...) of the finite rows to (B, T, ...) of all rows."""
        return [_spread(array.transpose(0, 1), good, len(whole.lengths)) for array in arrays]

    return GradientFlow(
        loss=loss if isinstance(loss, str) else "function",
        value=value,
        lengths=whole.lengths,
        delta=rows(deltas),
        local=rows(locals_),
        delta_cell=rows(cells),
        jacobian_norms=rows(jacobians),
        product_norms=rows(products),
        bound=rows(bounds),
        spectral_radius=[spectral_radius(p.derivative.weight_hh) for p in passages],
        spectral_norm=[float(torch.linalg.matrix_norm(p.derivative.weight_hh, 2)) for p in passages],
        influence=by_derivative,
        influence_perturbed=by_change,
        memory_length=[memory_length(curve) for curve in by_derivative],
        memory_length_perturbed=[memory_length(curve) for curve in by_change],
        weight_gradients=weights,
        gates=[
            dict(zip(gates, rows([gate.masked_fill(past.unsqueeze(-1), 0) for gate in gates.values()]), strict=True))
            for gates in (passage.values for passage in passages)
        ],
        nonfinite=nonfinite,
        replay_error=error,
    )


def spectral_radius(weight_hh: Tensor) -> float:
    """Return the largest |eigenvalue| of W_hh (G·M, M); for gated cells, of the candidate's rows (the third gate)."""
    size = weight_hh.shape[1]
    candidate = weight_hh if len(weight_hh) == size else weight_hh[2 * size : 3 * size]
    return float(torch.linalg.eigvals(candidate).abs().amax())


def _nonfinite(subject: Subject) -> list[tuple[int, int]]:
    """Return (row, step) of the first non-finite input or output of each row that has one."""
    wrong = ~subject.output.isfinite().all(-1)
    if subject.features.is_floating_point():
        wrong |= ~subject.features.isfinite().all(-1)
    wrong &= subject.real
    return [(int(row), int(wrong[row].int().argmax())) for row in torch.nonzero(wrong.any(1)).flatten()]


def _finite_part(subject: Subject, good: Tensor) -> Subject:
    """Return the subject with non-finite rows set to zeros; a loss function may rely on the number of rows."""
    finite = torch.zeros(len(subject.lengths), dtype=torch.bool, device=good.device)
    finite[good] = True
    return replace(
        subject,
        output=subject.output.masked_fill(~finite.view(-1, 1, 1), 0),
        lengths=subject.lengths.masked_fill(~finite, 0),
    )


def _spread(array: Tensor, rows: Tensor, batch_size: int) -> Tensor:
    if len(rows) == batch_size:
        return array
    spread = array.new_full((batch_size, *array.shape[1:]), float("nan"))
    spread[rows] = array
    return spread


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
