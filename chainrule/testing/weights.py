"""Other weights for the same model, which show faults that the given weights hide."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel
from chainrule.testing.choices import Choices
from chainrule.testing.subject import N, Subject, independent_copy

Draw = Callable[[Choices, Tensor], Tensor]


def jittered(choices: Choices, parameter: Tensor) -> Tensor:
    """Every weight scaled by a random factor: signs, and so any constraint on them, stay."""
    return parameter * (0.5 * choices.normal(parameter.shape)).exp()


def fresh(choices: Choices, parameter: Tensor) -> Tensor:
    """Weights and biases that keep activations of ordinary size."""
    return _normal(choices, parameter, 1.0, 1.0)


def sharp(choices: Choices, parameter: Tensor) -> Tensor:
    """Large weights: conditionals depend strongly on what was read."""
    return _normal(choices, parameter, 3.0, 0.5)


def steep(choices: Choices, parameter: Tensor) -> Tensor:
    """Very large weights: saturating units work as switches, and a difference once made is kept."""
    return _normal(choices, parameter, 8.0, 0.5)


def biased(choices: Choices, parameter: Tensor) -> Tensor:
    """Large biases: some gates stay open for long, and some rectifiers that never fired do."""
    return _normal(choices, parameter, 1.0, 4.0)


def uneven(choices: Choices, parameter: Tensor) -> Tensor:
    """Each parameter at a scale of its own, from 0.3 to 10."""
    scale = 0.3 * float(10 ** (1.5 * choices.uniform((1,))))
    return _normal(choices, parameter, scale, scale)


def isometric(choices: Choices, parameter: Tensor) -> Tensor:
    """Recurrences that keep lengths, everything else so small that units stay in their linear range."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.cat([torch.linalg.qr(choices.normal((blocks, blocks)))[0] for _ in parameter.split(blocks)])
    return 0.02 * _normal(choices, parameter, 1.0, 0.0)


def remembering(choices: Choices, parameter: Tensor) -> Tensor:
    """Recurrences that pass every unit on as it is, with small positive biases that keep rectifiers alive."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.eye(blocks, device=parameter.device).repeat(parameter.shape[0] // blocks, 1)
    if parameter.dim() < 2:
        return 0.05 * choices.normal(parameter.shape).abs()
    return 0.1 * _normal(choices, parameter, 1.0, 0.0)


def weighted(subject: Subject, draws: tuple[Draw, ...]) -> Iterator[tuple[str, AutoregressiveModel]]:
    """Copies of the model with newly drawn weights; draws that the model cannot compute with are left out."""
    for draw in draws:
        model = redrawn(subject, draw)
        if model is not None:
            yield f"with {draw.__name__} random weights, ", model


@torch.no_grad()
def refilled(model: N, choices: Choices, draw: Draw) -> N:
    """A copy of a model with weights that are drawn."""
    model = independent_copy(model)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.is_floating_point() and parameter.numel():
            parameter.copy_(draw(choices, parameter))
    return model


@torch.no_grad()
def redrawn(subject: Subject, draw: Draw) -> AutoregressiveModel | None:
    """One such copy; `None` where its conditionals are no numbers."""
    model = refilled(subject.model, subject, draw)
    try:
        return None if subject.forward(subject.beginning(4), model=model).isnan().any() else model
    except Exception:
        return None  # a scale drawn negative, say


def _normal(choices: Choices, parameter: Tensor, gain: float, bias: float) -> Tensor:
    if parameter.dim() < 2:
        return bias * choices.normal(parameter.shape)
    fan_in = parameter[0].numel()
    return gain * fan_in**-0.5 * choices.normal(parameter.shape)


def _square_blocks(parameter: Tensor) -> int:
    """M for a matrix of shape (M, M), (2M, M), (3M, M) or (4M, M), as recurrences have; 0 for any other."""
    if parameter.dim() != 2 or parameter.shape[0] % parameter.shape[1] or parameter.shape[0] > 4 * parameter.shape[1]:
        return 0
    return parameter.shape[1]
