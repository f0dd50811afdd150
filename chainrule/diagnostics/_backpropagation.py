"""Backpropagation through time by its equations, with the gradient at every step of every layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule.diagnostics._derivatives import Passage
from chainrule.diagnostics._subject import Loss, Subject, replay, subject_of
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
