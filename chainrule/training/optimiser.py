"""AdamW over the parameters of a model, and its moments as named tensors."""

import torch
from torch import Tensor, nn
from torch.optim import AdamW

BETAS = (0.9, 0.99)  # a shorter memory of squares than Adam's 0.999: runs here are a few thousand steps


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float) -> AdamW:
    """AdamW (Loshchilov and Hutter 2019); biases, gains and other vectors do not decay."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("model: expected parameters that require a gradient, got none: there is nothing to train")
    groups = [
        {"params": [parameter for parameter in trained if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in trained)
    return AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=BETAS, fused=fused)


def clip_gradient(model: nn.Module, norm: float | None) -> Tensor:
    r"""Scale the gradient to :math:`g \min(1, \theta / \lVert g \rVert)`; returns the norm before that, ()."""
    return nn.utils.clip_grad_norm_(model.parameters(), float("inf") if norm is None else norm)


def moments(optimiser: AdamW, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser remembers, named `exp_avg.WEIGHT`, `exp_avg_sq.WEIGHT` and `step.WEIGHT`."""
    return {
        f"{kind}.{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimiser.state.get(parameter, {}).items()
    }


def restore_moments(optimiser: AdamW, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `moments` gave; weights it has nothing for start anew.

    Raises:
        ValueError: a moment has another shape than its weight.
    """
    optimiser.state.clear()
    for name, parameter in model.named_parameters():
        remembered = {kind: tensors[f"{kind}.{name}"] for kind in _KINDS if f"{kind}.{name}" in tensors}
        for kind, value in remembered.items():
            expected = () if kind == "step" else tuple(parameter.shape)
            if tuple(value.shape) != expected:
                raise ValueError(
                    f"checkpoint: expected {kind} of {name} in shape {expected}, "
                    f"got {tuple(value.shape)}: it belongs to another model"
                )
        if remembered and len(remembered) < len(_KINDS):
            raise ValueError(
                f"checkpoint: expected {', '.join(_KINDS)} of {name}, got {', '.join(remembered)}: damaged"
            )
        if remembered:
            optimiser.state[parameter] = {
                kind: value.to(parameter.device, torch.float32 if kind == "step" else parameter.dtype)
                for kind, value in remembered.items()
            }


_KINDS = ("step", "exp_avg", "exp_avg_sq")
