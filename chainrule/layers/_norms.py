"""Normalisation of each element's features, by name."""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from chainrule.layers._row_vectors import RowMap, by_torch, numpy_may_compute
from chainrule.layers._sequence_layer import is_plain

NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
EPSILON = 1e-5


def norm_layer(norm: str, size: int) -> nn.LayerNorm | nn.RMSNorm:
    r"""LayerNorm (Ba, Kiros and Hinton 2016) or RMSNorm (Zhang and Sennrich 2019) over N features.

    .. math:: \mathrm{LN}(x) = g \odot \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + b, \qquad
        \mathrm{RMS}(x) = g \odot \frac{x}{\sqrt{\frac1N \sum_i x_i^2 + \varepsilon}}

    Args:
        norm: "layer" or "rms".
        size: N.

    Raises:
        ValueError: there is no such norm.

    >>> norm_layer("rms", 4)
    RMSNorm((4,), eps=1e-05, elementwise_affine=True)
    """
    if norm not in NORMS:
        raise ValueError(f"norm: expected one of {', '.join(NORMS)}, got {norm!r}")
    return NORMS[norm](size, eps=EPSILON)


def prepared_norm(norm: nn.Module) -> RowMap:
    """A function equal to a norm with fixed weights, of rows or a vector, without gradients.

    Calling the module costs twice as much.

    >>> x = torch.randn(2, 4)
    >>> torch.equal(prepared_norm(norm_layer("layer", 4))(x), nn.functional.layer_norm(x, (4,)))
    True
    """
    match norm:
        case nn.LayerNorm(weight=nn.Parameter() as weight, bias=nn.Parameter() as bias) if is_plain(norm):
            shape, epsilon = list(norm.normalized_shape), norm.eps
            if numpy_may_compute(weight):
                scale, shift = weight.detach().numpy(), bias.detach().numpy()

            def normalise(x: Any) -> Any:
                if isinstance(x, torch.Tensor):
                    return torch.layer_norm(x, shape, weight, bias, epsilon)
                y = x - np.add.reduce(x) / len(x)
                y *= 1 / math.sqrt(y.dot(y) / len(y) + epsilon)
                y *= scale
                y += shift
                return y

            return normalise
    return by_torch(norm)
