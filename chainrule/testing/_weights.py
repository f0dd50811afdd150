"""Other weights for the same model, which show faults that the given weights hide."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.testing._subject import M, Subject, independent_copy

NORMAL = {  # standard deviation of weights, by their fan-in, and of biases
    "fresh": (1.0, 1.0),  # keep activations of ordinary size
    "sharp": (3.0, 0.5),  # conditionals depend strongly on what was read
    "steep": (8.0, 0.5),  # saturating units work as switches, and a difference once made is kept
    "biased": (1.0, 4.0),  # some gates stay open for long, and some rectifiers that never fired do
}


def jittered(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Every weight scaled by a random factor: signs, and so any constraint on them, stay."""
    return parameter * (0.5 * subject.normal(parameter.shape)).exp()


def uneven(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Each parameter at a scale of its own, from 0.3 to 10."""
    scale = 0.3 * float(10 ** (1.5 * subject.uniform((1,))))
    return _normal(subject, parameter, scale, scale)


def isometric(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Recurrences that keep lengths, everything else so small that units stay in their linear range."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.cat([torch.linalg.qr(subject.normal((blocks, blocks)))[0] for _ in parameter.split(blocks)])
    return 0.02 * _normal(subject, parameter, 1.0, 0.0)


def remembering(subject: Subject[Any], parameter: Tensor) -> Tensor:
    """Recurrences that pass every unit on as it is, with small positive biases that keep rectifiers alive."""
    blocks = _square_blocks(parameter)
    if blocks:
        return torch.eye(blocks, device=parameter.device).repeat(parameter.shape[0] // blocks, 1)
    if parameter.dim() < 2:
        return 0.05 * subject.normal(parameter.shape).abs()
    return 0.1 * _normal(subject, parameter, 1.0, 0.0)


OTHERS = {"jittered": jittered, "uneven": uneven, "isometric": isometric, "remembering": remembering}


def weighted(subject: Subject[M], *draws: str) -> Iterator[tuple[str, M]]:
    """The model, and copies with newly drawn weights; draws that the model cannot compute with are left out."""
    yield "", subject.model
    for draw in draws:
        model = independent_copy(subject.model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.is_floating_point() and parameter.numel():
                    make = OTHERS.get(draw) or partial(_normal, gain=NORMAL[draw][0], bias=NORMAL[draw][1])
                    parameter.copy_(make(subject, parameter))
            try:
                useless = subject.numbers(subject.batch(4), model).isnan().any()
            except Exception:
                continue  # a scale drawn negative, say
        if not useless:
            yield f"with {draw} random weights, ", model


def _normal(subject: Subject[Any], parameter: Tensor, gain: float, bias: float) -> Tensor:
    if parameter.dim() < 2:
        return bias * subject.normal(parameter.shape)
    fan_in = parameter[0].numel()
    return gain * fan_in**-0.5 * subject.normal(parameter.shape)


def _square_blocks(parameter: Tensor) -> int:
    """M for a matrix of shape (M, M), (2M, M), (3M, M) or (4M, M), as recurrences have; 0 for any other."""
    if parameter.dim() != 2 or parameter.shape[0] % parameter.shape[1] or parameter.shape[0] > 4 * parameter.shape[1]:
        return 0
    return parameter.shape[1]
