"""Numbers that a floating type can hold and work on."""

import math

import torch
from torch import Tensor


def at_least_float32(parameter: Tensor) -> Tensor:
    """A parameter in the type it is worked on: half precision is too short for sums of exponentials."""
    return parameter.float() if parameter.dtype in (torch.bfloat16, torch.float16) else parameter


def largest_exponent(dtype: torch.dtype) -> float:
    """λ at which e^λ nears the end of a type: 84 in float32, 674 in float64. Scales beyond, either way, stay there."""
    return 0.95 * math.log(torch.finfo(dtype).max)


def representable(temperature: float, dtype: torch.dtype) -> float:
    """The nearest temperature that a type can divide by."""
    limits = torch.finfo(dtype)
    return min(max(temperature, limits.tiny), limits.max)
