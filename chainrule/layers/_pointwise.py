"""Functions of each element alone: linear layers, gated units, normalisation, dropout."""

import torch
from torch import Tensor, nn

from chainrule.option_error import OptionError


def gate(a: Tensor, dim: int = 1) -> Tensor:
    r"""Apply the gated unit of the gated PixelCNN and WaveNet (van den Oord et al. 2016) to two halves of channels.

    .. math:: y = \tanh(a_1) \odot \sigma(a_2)
    """
    values, openings = a.chunk(2, dim)
    return torch.tanh(values) * torch.sigmoid(openings)


def concatenated_elu(x: Tensor, dim: int = 1) -> Tensor:
    r"""Apply an exponential linear unit to both signs of x, which doubles the features (Salimans et al. 2017).

    .. math:: y = [\mathrm{elu}(x), \mathrm{elu}(-x)]
    """
    return torch.nn.functional.elu(torch.cat([x, -x], dim), inplace=True)


NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
EPSILON = 1e-5


def norm_layer(norm: str, size: int) -> nn.LayerNorm | nn.RMSNorm:
    r"""LayerNorm (Ba, Kiros and Hinton 2016) or RMSNorm (Zhang and Sennrich 2019) over N features.

    .. math:: \mathrm{LN}(x) = g \odot \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + b, \qquad
        \mathrm{RMS}(x) = g \odot \frac{x}{\sqrt{\frac1N \sum_i x_i^2 + \varepsilon}}
    """
    if norm not in NORMS:
        raise OptionError("norm", f"expected one of {', '.join(NORMS)}, got {norm!r}")
    return NORMS[norm](size, eps=EPSILON)


_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability p and scale the others so that the mean stays (Srivastava et al. 2014).

    The function of `torch.nn.functional.dropout`, which draws a random number for each element, one after the other: on
    a processor a tenth of a training step of a small LSTM. Here four elements share the 64 bits of one, so that p is
    rounded to the next 1/65,536; the scale belongs to the rounded p.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":  # a GPU draws them in parallel
        return nn.functional.dropout(x, p)
    levels_on = min(max(round((1 - p) * _LEVELS), 1), _LEVELS - 1)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (levels < levels_on - _LEVELS // 2).to(x.dtype).mul_(_LEVELS / levels_on)
