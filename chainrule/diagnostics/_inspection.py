"""Inspection of a recurrence on data, as `chainrule inspect` shows it."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.diagnostics._backpropagation import (
    THRESHOLD,
    Backpropagation,
    backpropagate,
    by_distance,
    gradient_norms,
    reach,
)
from chainrule.diagnostics._gradient_flow import GradientFlow, gradient_flow
from chainrule.diagnostics._hidden_units import (
    FLAT,
    SIGMOIDS,
    dead_units,
    histogram,
    saturation,
)
from chainrule.diagnostics._subject import single_layers
from chainrule.diagnostics._verdict import Evidence, Verdict, verdict
from chainrule.layers import GRU, LSTM, RNN, Recurrent
from chainrule.models import RecurrentLM
from chainrule.models._model_mean import first_part
from chainrule.modes import evaluating

LOSSES = 6  # losses per row, in its second half so that each can reach far back
LARGEST_SLOPES = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25, "identity": 1.0}


@dataclass(frozen=True)
class SingleLosses:
    r"""Gradient norms of single losses by the distance k to each loss, (T,) per layer, bottom first.

    Each loss is weighted by its gradient, because a nearly certain prediction says little about the others. At each
    distance, only losses with enough earlier steps enter both sums:

    .. math:: \bar\delta_k = \bar\delta_0 \, \frac{\sum_n \lVert\delta^{(n)}_{n-k}\rVert}
                                              {\sum_n \lVert\delta^{(n)}_n\rVert}
    """

    delta: list[Tensor]  # ‖δ‖
    local: list[Tensor]  # ‖g‖
    cell: list[Tensor]  # ‖∂L/∂c‖; an empty list where there are no cells


def single_losses(module: nn.Module, x: Tensor, lengths: Tensor, rows: list[int]) -> SingleLosses:
    """Backpropagate several losses of each row one at a time; only the finite `rows` count."""
    index = torch.tensor(rows, device="cpu")
    ends = _ends(lengths.cpu())
    passes = [(end[index], backpropagate(module, x, "last", end)) for end in ends]

    def profiles(part: str) -> list[Tensor]:
        layers = range(len(getattr(passes[0][1], part)))
        return [
            _profile([(end, gradient_norms(getattr(result, part)[layer][index])) for end, result in passes])
            for layer in layers
        ]

    return SingleLosses(profiles("delta"), profiles("local"), profiles("delta_cell"))


def _ends(lengths: Tensor) -> list[Tensor]:
    """Return the steps of the losses, (B,) each: evenly spaced in each row's second half, including the last step."""
    ends = [(lengths * (LOSSES + index) / (2 * LOSSES)).ceil().long().clamp(min=2) for index in range(1, LOSSES + 1)]
    return [torch.minimum(end, lengths) for end in ends]


def _profile(losses: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Combine (ends (B,), norms (B, T)) of several losses; NaN at distances without a loss that has a gradient."""
    steps = torch.arange(losses[0][1].shape[1], device="cpu")
    at_distance = at_the_loss = torch.zeros(len(steps), dtype=torch.float64, device="cpu")
    count = 0
    for ends, norms in losses:
        source = ends.unsqueeze(1) - 1 - steps
        inside = source >= 0
        back = norms.gather(1, source.clamp(min=0)).masked_fill(~inside, 0)
        at_distance = at_distance + back.sum(0)
        at_the_loss = at_the_loss + (back[:, :1] * inside).sum(0)
        count += int((ends > 0).sum())
    return torch.where(at_the_loss > 0, at_distance / at_the_loss, torch.nan) * (at_the_loss[0] / max(count, 1))


@dataclass(frozen=True, kw_only=True)
class LayerInspection(Evidence):
    """Inspection of a layer; profiles are means over rows by the distance k to a row's last step, (T,), float64.

    Args:
        description: the cell in words, such as "RNN (tanh)".
        hidden_size: number of units M.
        delta_last: ‖δ_{n−k}‖ for a loss at the last step.
        delta_every: ‖δ_{n−k}‖ for a loss at every step.
        local_every: ‖g_{n−k}‖ for the same loss.
        jacobian_norm: ‖J_{n−k}‖.
        product_norm: ‖J_n ⋯ J_{n−k+1}‖.
        bound: upper bound of `product_norm` from norms.
        delta_single, local_single, cell_single: norms by the distance to a single loss, see `SingleLosses`; the basis
            of `reach`, `growth` and the verdict.
        spectral_radius, memory_length, memory_length_perturbed: see `GradientFlow`.
        gate_histograms: shares in 20 bins over [0, 1].
        verdict: a sentence and its rule.
    """

    FLAT: ClassVar[float] = FLAT  # share of the largest slope below which a nonlinearity is flat
    VANISHED: ClassVar[float] = THRESHOLD  # share of its largest value below which a gradient has vanished

    description: str
    hidden_size: int
    delta_last: Tensor
    delta_single: Tensor
    local_single: Tensor
    cell_single: Tensor | None
    delta_every: Tensor
    local_every: Tensor
    jacobian_norm: Tensor
    product_norm: Tensor
    bound: Tensor
    spectral_radius: float
    memory_length: float
    memory_length_perturbed: float
    gate_histograms: dict[str, Tensor]
    verdict: Verdict


@dataclass(frozen=True)
class Inspection:
    """Inspection of a recurrence on data.

    Args:
        layers: layers, bottom first.
        flow: gradient flow of a loss at each row's last step.
        every_step: gradients of a loss averaged over all steps.
        surprise: −log2 p(x_t | x_{<t}), (B, T), bits; zero in padding; `None` for a bare layer.
    """

    layers: list[LayerInspection]
    flow: GradientFlow
    every_step: Backpropagation
    surprise: Tensor | None


def inspect_recurrence(
    module: nn.Module,
    x: Tensor,
    lengths: Tensor | None = None,
    *,
    seed: int = 0,
) -> Inspection:
    """Inspect a recurrence on real data: gradients through time, Jacobians, gates, memory, and a verdict per layer.

    Args:
        module, x, lengths, seed: arguments of `gradient_flow`.

    Raises:
        ValueError: see `gradient_flow`.

    >>> from chainrule import RecurrentLM
    >>> model = RecurrentLM(vocab_size=5, hidden_size=8)
    >>> inspection = inspect_recurrence(model, torch.randint(0, 5, (2, 12)))
    >>> inspection.layers[0].description, inspection.surprise.shape
    ('LSTM', torch.Size([2, 12]))
    """
    if isinstance(module, AutoregressiveModel):
        module, _ = first_part(module)
    flow = gradient_flow(module, x, "last", lengths, seed=seed)
    every_step = backpropagate(module, x, "mean", lengths)
    recurrent = module.recurrent if isinstance(module, RecurrentLM) else module
    assert isinstance(recurrent, nn.RNNBase)
    # A model's h_t has read x_{t−1} and predicts x_t; a bare layer's has read x_t.
    lag = int(isinstance(module, RecurrentLM))
    bad = dict(flow.nonfinite)
    single = single_losses(module, x, flow.lengths, [row for row in range(len(flow.lengths)) if row not in bad])
    layers = [
        _layer(layer, index, flow, every_step, single, lag) for index, layer in enumerate(single_layers(recurrent))
    ]
    return Inspection(layers, flow, every_step, _surprise(module, x, flow))


def _layer(
    layer: Recurrent,
    index: int,
    flow: GradientFlow,
    every_step: Backpropagation,
    single: SingleLosses,
    lag: int,
) -> LayerInspection:
    finite = [row for row in range(len(flow.lengths)) if row not in dict(flow.nonfinite)]

    def profile(values: Tensor) -> Tensor:
        return by_distance(values[finite], flow.lengths[finite])

    def norms(gradient: Tensor) -> Tensor:
        return by_distance(gradient_norms(gradient[finite]), flow.lengths[finite])

    real = torch.arange(flow.delta[0].shape[1], device="cpu") < flow.lengths.cpu().unsqueeze(1)
    values = {name: gate.cpu()[finite][real[finite]] for name, gate in flow.gates[index].items()}  # (P, M) each
    gates = {name: gate for name, gate in values.items() if name in SIGMOIDS}
    nonlinearity = layer.nonlinearity if isinstance(layer, RNN) else "tanh"
    flat = {name: saturation(gate, "sigmoid") for name, gate in gates.items()}
    if isinstance(layer, LSTM | GRU):
        flat["candidate"] = saturation(values["candidate"], "tanh")
    elif nonlinearity in ("tanh", "sigmoid"):
        flat["hidden"] = saturation(values["hidden"], nonlinearity)
    delta_single, cell_single = single.delta[index], single.cell[index] if single.cell else None
    # An LSTM's cell may preserve a gradient that vanished in h.
    profiles = [delta_single] if cell_single is None else [delta_single, cell_single]
    relative = torch.stack([each / each[0] for each in profiles]).nan_to_num(-1.0, posinf=math.inf).amax(0)
    relative = relative[relative >= 0]  # up to the longest distance to a loss that has a gradient
    evidence = Evidence(
        cell={LSTM: "lstm", GRU: "gru", RNN: "rnn"}[type(layer)],
        nonlinearity=nonlinearity,
        steps=max(len(relative) - 1, 0),
        reach=max(reach(each) for each in profiles),
        end=float(relative[-1]) if len(relative) else math.nan,
        growth=float(relative.amax()) if len(relative) else math.nan,
        spectral_norm=flow.spectral_norm[index],
        largest_slope=LARGEST_SLOPES[nonlinearity],
        saturation=flat,
        dead=dead_units(values["hidden"]) if nonlinearity == "relu" else None,
        gate_means={name: float(gate.mean()) for name, gate in gates.items()},
        began_open=bool(lag),
    )
    return LayerInspection(
        **vars(evidence),
        description=_description(layer),
        hidden_size=layer.hidden_size,
        delta_last=norms(flow.delta[index]),
        delta_single=delta_single,
        local_single=single.local[index],
        cell_single=cell_single,
        delta_every=norms(every_step.delta[index]),
        local_every=norms(every_step.local[index]),
        jacobian_norm=profile(flow.jacobian_norms[index]),
        product_norm=profile(flow.product_norms[index]),
        bound=profile(flow.bound[index]),
        spectral_radius=flow.spectral_radius[index],
        memory_length=flow.memory_length[index],
        memory_length_perturbed=flow.memory_length_perturbed[index],
        gate_histograms={name: histogram(gate) for name, gate in gates.items()},
        verdict=verdict(evidence),
    )


def _description(layer: Recurrent) -> str:
    match layer:
        case LSTM():
            return "LSTM"
        case GRU():
            return f"GRU (reset {'after' if layer.reset_after else 'before'} the product)"
        case RNN():
            return f"RNN ({layer.nonlinearity})"
    raise ValueError(f"module: expected an RNN, LSTM or GRU, got {type(layer).__name__}")


def _surprise(module: nn.Module, x: Tensor, flow: GradientFlow) -> Tensor | None:
    if not isinstance(module, RecurrentLM):
        return None
    real = torch.arange(x.shape[1], device=x.device) < flow.lengths.unsqueeze(1)
    with torch.no_grad(), evaluating(module):
        nats = -module(x.masked_fill(~real, 0), lengths=flow.lengths).log_prob(x.masked_fill(~real, 0))
    return nats.masked_fill(~real, 0) / math.log(2)
