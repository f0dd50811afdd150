"""Normalisation of each element's features, by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

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


def prepared_norm(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function equal to a norm with fixed weights, without gradients; calling the module costs twice as much.

    >>> x = torch.randn(2, 4)
    >>> torch.equal(prepared_norm(norm_layer("layer", 4))(x), nn.functional.layer_norm(x, (4,)))
    True
    """
    match norm:
        case nn.LayerNorm():
            shape, weight, bias, epsilon = list(norm.normalized_shape), norm.weight, norm.bias, norm.eps
            return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return norm
