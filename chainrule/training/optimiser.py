"""The optimiser of a model, its learning rate, and its moments as named tensors."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from chainrule.training.muon import Muon, hidden_matrices


def learning_rate(progress: float, peak: float, warmup: float, floor: float = 0.01) -> float:
    r"""Linear warm-up, then half a cosine down to a hundredth of the peak (Loshchilov and Hutter 2017, SGDR).

    .. math::
        \eta(p) = \eta_{max} \begin{cases} p / w & p < w \\
        f + (1 - f) \frac{1 + \cos(\pi (p - w)/(1 - w))}{2} & p \ge w \end{cases}

    Progress is a fraction, of steps or of seconds: nothing here knows how long a run lasts, so a run that is extended
    resumes at its place in the longer schedule.

    Args:
        progress: fraction of the run done at the end of the step, in [0, 1].
        peak: the highest learning rate.
        warmup: fraction of the run spent rising, in [0, 1).
        floor: last learning rate as a fraction of the peak: the last steps still learn.

    >>> [round(learning_rate(p, 1.0, 0.2), 3) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.505, 0.01]
    """
    if progress < warmup:
        return peak * progress / warmup
    fall = (min(progress, 1.0) - warmup) / (1 - warmup)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * fall)) / 2)


Kind = Literal["adamw", "muon"]
BETAS = (0.9, 0.99)  # a shorter memory of squares than Adam's 0.999: runs here are a few thousand steps


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float, kind: Kind = "adamw") -> AdamW:
    """AdamW (Loshchilov and Hutter 2019), or Muon for hidden matrices; biases, gains and other vectors do not decay.

    Raises:
        ValueError: the model has no weights to train, or no hidden matrices for Muon.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("model: expected parameters that require a gradient, got none: there is nothing to train")
    matrices = hidden_matrices(model) if kind == "muon" else {}
    if kind == "muon" and not matrices:
        raise ValueError("optimiser: expected adamw for a model without matrices in sequence layers, got muon")
    rest = [parameter for parameter in trained if parameter not in matrices]
    groups = [
        {"params": [parameter for parameter in rest if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in rest if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in trained)
    if matrices:
        return Muon(groups, matrices, weight_decay=weight_decay, lr=learning_rate, betas=BETAS, fused=fused)
    return AdamW(groups, lr=learning_rate, betas=BETAS, fused=fused)


def forgetting_decay(steps: float, learning_rate: float, *, least: float = 0.01, most: float = 0.5) -> float:
    """The weight decay that forgets over so many steps, 1 / (steps · learning rate) (Wang and Aitchison 2024).

    Args:
        steps: in which weights shrink to 1/e, at the peak learning rate.
        learning_rate: that peak.
        least, most: limits.

    >>> forgetting_decay(434, 0.008), forgetting_decay(4e6, 0.008), forgetting_decay(10, 0.008)
    (0.29, 0.01, 0.5)
    """
    return round(min(most, max(least, 1 / max(steps * learning_rate, 1e-9))), 2)


def clip_gradient(model: nn.Module, norm: float | None) -> Tensor:
    r"""Scale the gradient to :math:`g \min(1, \theta / \lVert g \rVert)`; returns the norm before that, ()."""
    return nn.utils.clip_grad_norm_(model.parameters(), float("inf") if norm is None else norm)


def moments(optimiser: AdamW, model: nn.Module) -> dict[str, Tensor]:
    """Moments of the optimiser, named `exp_avg.WEIGHT`, `exp_avg_sq.WEIGHT` and `step.WEIGHT`, or as Muon has them."""
    return {
        f"{kind}.{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimiser.state.get(parameter, {}).items()
    }


def restore_moments(optimiser: AdamW, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back the result of `moments`; weights without an entry begin with no moments.

    Raises:
        ValueError: a moment has another shape than its weight.
    """
    optimiser.state.clear()
    for name, parameter in model.named_parameters():
        of_muon = isinstance(optimiser, Muon) and parameter in optimiser.matrices
        kinds = _KINDS_OF_MUON if of_muon else _KINDS
        remembered = {kind: tensors[f"{kind}.{name}"] for kind in kinds if f"{kind}.{name}" in tensors}
        for kind, value in remembered.items():
            expected = () if kind == "step" else tuple(parameter.shape)
            if tuple(value.shape) != expected:
                raise ValueError(
                    f"checkpoint: expected {kind} of {name} in shape {expected}, "
                    f"got {tuple(value.shape)}: it belongs to another model"
                )
        if remembered and len(remembered) < len(kinds):
            raise ValueError(f"checkpoint: expected {', '.join(kinds)} of {name}, got {', '.join(remembered)}: damaged")
        if remembered:
            optimiser.state[parameter] = {
                kind: value.to(parameter.device, torch.float32 if kind == "step" else parameter.dtype)
                for kind, value in remembered.items()
            }
            if of_muon:  # it counts on the processor
                optimiser.state[parameter]["step"] = remembered["step"].to("cpu", torch.float32)


_KINDS = ("step", "exp_avg", "exp_avg_sq")  # of AdamW
_KINDS_OF_MUON = ("step", "momentum", "direction")
