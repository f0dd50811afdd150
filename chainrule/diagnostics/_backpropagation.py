"""Backpropagation through time, as its equations read: a gradient at every step of every layer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule.diagnostics._derivatives import Passage
from chainrule.diagnostics._passages import replay
from chainrule.diagnostics._subject import Loss, Subject, subject_of
from chainrule.state import State


@dataclass(frozen=True)
class Backpropagation:
    """Gradients of one loss at every step. Lists are over layers, bottom first; arrays batch first.

    Args:
        delta: δ_t = ∂L/∂h_t, everything that reaches h_t, (B, T, M). Zero past a row's end.
        local: g_t, the part that arrives at step t itself: from the loss at the top, from the layer above below it.
        delta_cell: ∂L/∂c_t, (B, T, M); an empty list where there are no cells.
        weight_gradients: ∂L/∂W by torch.nn's names, `weight_hh_l0`...
        loss: L, summed over rows; nats for a model.
        lengths: (B,).
        replay_error: how far the replayed h_t are from the module's own, at most.
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
    r"""Backpropagation through time (Werbos 1990), with the gradient at every step that a fused kernel hides.

    .. math::
        \delta_t = g_t + J_{t+1}^\top \delta_{t+1}, \qquad
        \partial L/\partial W_{hh} = \sum_t (D_t \delta_t) h_{t-1}^\top

    The loss is a sum over rows, so that a row's figures do not depend on the others.

    Args:
        module: a layer of `chainrule.layers` or `torch.nn` (RNN, LSTM, GRU; not bidirectional), or a `RecurrentLM`,
            which may be the network of a `CalibratedMixture` or the first member of an `Ensemble`; its dropout is
            off.
        x: (B, T, N) features, or (B, T) integers for chainrule's layers and models; for a module of torch.nn, in the
            layout that it reads.
        loss: "last" is that of the last step alone, "mean" the average over steps: of Σ h_t² for a bare layer, of
            −log p(x_t | x_{<t}) for a model. A function maps the top layer's h (B, T, M) to a scalar.
        lengths: (B,) real elements of each row.
        state: where the rows continue from, as the module returns it; zeros if `None`.
        x_prev: for a model, (B,) the element before x; `None` where the row begins.

    Raises:
        ValueError: no recurrence, a shape that does not fit, a weight that is not finite, or fewer than two steps.

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
    """From the local gradient at the top (B, T, M) down to the weights.

    Returns:
        δ_t and g_t of each layer (T, B, M), and ∂L/∂c_t of those with cells; and the weights' gradients by name.
    """
    deltas: list[Tensor] = []
    locals_: list[Tensor] = []
    cells: list[Tensor] = []
    gradients = {}
    g = local.transpose(0, 1)
    for index in reversed(range(len(passages))):
        passage = passages[index]
        delta = _through_time(passage, g)
        _, d, d_recurrent = passage.derivative.pull(delta)  # D_t δ_t of all steps: the sums over t are one product each
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
            g = d @ weight_ih  # sent to the layer below, at the same step
    return deltas, locals_, cells, gradients


def _through_time(passage: Passage, local: Tensor) -> Tensor:
    """δ_t = g_t + J_{t+1}ᵀ δ_{t+1} for all t, last first. local: (T, B, M). Returns (T, B, S)."""
    derivative = passage.derivative
    delta = local.new_zeros(*local.shape[:2], derivative.state_size)
    delta[..., : local.shape[-1]] = local
    for t in reversed(range(len(local) - 1)):
        delta[t] += derivative[t + 1].pull(delta[t + 1])[0]
    return delta


def _input_gradient(d: Tensor, x: Tensor, input_size: int) -> Tensor:
    """∂L/∂W_ih = Σ_t (D_t δ_t) x_tᵀ, (G·M, N); integers are one-hot vectors, so that their rows are added up."""
    if x.is_floating_point():
        return d.flatten(0, 1).t() @ x.flatten(0, 1)
    return d.new_zeros(input_size, d.shape[-1]).index_add_(0, x.flatten(), d.flatten(0, 1)).t()
