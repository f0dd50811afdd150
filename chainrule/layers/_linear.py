"""Linear layers, by the faster of torch's two libraries."""

from torch import Tensor, nn

from chainrule.kernels._products import onednn_multiplies, onednn_product


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, equal to `torch.nn.functional.linear` to rounding."""
    return (
        onednn_product(x, weight, bias) if onednn_multiplies(x, weight, bias) else nn.functional.linear(x, weight, bias)
    )


class Linear(nn.Linear):
    """`torch.nn.Linear` whose product is `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return linear(x, self.weight, self.bias)
