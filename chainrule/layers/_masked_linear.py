"""A dense layer with a mask on its weights."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule.layers._linear import linear


@final
class MaskedLinear(nn.Module):
    r"""A linear map that reads only what its mask lets through.

    .. math:: y = (W \odot M) x + b

    Weights outside the mask have no effect and receive a zero gradient. Rows start with the variance that `nn.Linear`
    would give a unit of as many inputs as the mask leaves them.

    Args:
        mask: M, (units, inputs) booleans, true where a unit may read an input; a buffer that is not in the
            `state_dict`, since the constructor is given it.
        bias: whether the layer has b.

    Raises:
        ValueError: the mask is no matrix of booleans.

    >>> layer = MaskedLinear(torch.tensor([[False, False], [True, False]]), bias=False)
    >>> bool(layer(torch.randn(2))[0] == 0)
    True
    """

    mask: Tensor

    def __init__(self, mask: Tensor, bias: bool = True):
        super().__init__()
        if mask.dim() != 2 or mask.dtype != torch.bool:
            raise ValueError(
                f"mask: expected (units, inputs) booleans, got shape {tuple(mask.shape)} of {mask.dtype}: "
                "compare it with 0 to make booleans"
            )
        fixed_buffer(self, "mask", mask)
        self.weight = nn.Parameter(torch.empty(mask.shape, device=self.mask.device))
        self.bias = nn.Parameter(torch.zeros(mask.shape[0], device=self.mask.device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights."""
        nn.init.uniform_(self.weight, -1, 1)
        with torch.no_grad():
            self.weight.div_(self.mask.sum(1, keepdim=True).clamp_min(1).sqrt())
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., units)."""
        return linear(x, self.weight * self.mask, self.bias)

    def extra_repr(self) -> str:
        units, inputs = self.mask.shape
        return f"inputs={inputs}, units={units}, bias={self.bias is not None}"
