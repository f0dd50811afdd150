"""Normalisation of each element's features, by name."""

from torch import nn

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
