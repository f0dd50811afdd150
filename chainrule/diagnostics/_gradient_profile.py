"""How far a loss reaches back through time: ‖δ_t‖ of a few rows, cheap enough to be monitored in training."""

import torch
from torch import Tensor, nn

from chainrule.diagnostics._backpropagation import backpropagate
from chainrule.state import State


def gradient_profile(
    module: nn.Module, x: Tensor, lengths: Tensor | None = None, state: State = None, x_prev: Tensor | None = None
) -> list[Tensor]:
    r"""The norm of each layer's gradient at every distance from the loss of a row's last step (Pascanu et al. 2013).

    .. math:: p_k = \lVert \delta_{n-k} \rVert = \lVert \partial \ell_n / \partial h_{n-k} \rVert, \qquad 0 \le k < n

    `chainrule.training.train(..., watch=gradient_profile)` takes it.

    Args:
        module: as `backpropagate` takes it; its dropout is off. Not changed.
        x: (B, T) integers, or (B, T, N) features for a bare layer.
        lengths: (B,) real elements n of each row; T where not given.
        state: where the rows continue from; zeros if `None`.
        x_prev: for a model, (B,) the element before x; `None` where the row begins.

    Returns:
        For each layer, bottom first, (B, T): p_k of every row; zero for k ≥ n.

    Raises:
        ValueError: no recurrence, a shape that does not fit, a weight that is not finite, or fewer than two steps.

    >>> layer = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
    >>> _ = layer.weight_hh_l0.data.fill_(0.5), layer.weight_ih_l0.data.fill_(1.0)
    >>> gradient_profile(layer, torch.ones(1, 3, 1))  # 2 h_3 · (1, 0.5, 0.5²)
    [tensor([[3.5000, 1.7500, 0.8750]])]
    """
    flow = backpropagate(module, x, "last", lengths, state=state, x_prev=x_prev)
    time = flow.delta[0].shape[1]
    from_the_end = flow.lengths.unsqueeze(1) - 1 - torch.arange(time, device=x.device)  # (B, T), negative past a row
    norms = [torch.linalg.vector_norm(delta, dim=-1) for delta in flow.delta]
    return [norm.gather(1, from_the_end.clamp(min=0)) * (from_the_end >= 0) for norm in norms]
