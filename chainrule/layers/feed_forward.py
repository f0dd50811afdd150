"""The position-wise network of a Transformer block, and linear layers prepared for single steps."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": nn.functional.gelu, "relu": nn.functional.relu}
GATED = "swiglu"


class FeedForward(nn.Module):
    r"""Two linear layers with a non-linearity between, at each element alone.

    .. math:: y = W_2\, \mathrm{gelu}(W_1 x + b_1) + b_2 \qquad\text{or}\qquad
        y = W_2\,(\mathrm{silu}(a) \odot g) + b_2, \quad [a, g] = W_1 x + b_1

    the second is SwiGLU (Shazeer 2020).

    Args:
        model_size: D.
        hidden_size: F, rows of W_1; with SwiGLU of each half of it. `None` is 4·D, with SwiGLU 8/3·D, which has as many
            weights.
        activation: "gelu", "relu" or "swiglu".
        bias: whether there are biases.

    Raises:
        ValueError: an argument is out of range.

    >>> import torch
    >>> FeedForward(6, activation="swiglu")(torch.zeros(2, 6)).shape
    torch.Size([2, 6])
    """

    def __init__(self, model_size: int, hidden_size: int | None = None, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        if activation != GATED and activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected one of {', '.join((*ACTIVATIONS, GATED))}, got {activation!r}")
        if hidden_size is None:
            hidden_size = 4 * model_size if activation != GATED else max(8 * model_size // 3, 1)
        for name, value in (("model_size", model_size), ("hidden_size", hidden_size)):
            if value < 1:
                raise ValueError(f"{name}: expected an integer >= 1, got {value}")
        self.activation = activation
        self.linear1 = nn.Linear(model_size, hidden_size * (2 if activation == GATED else 1), bias=bias)
        self.linear2 = nn.Linear(hidden_size, model_size, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; see `MultiHeadAttention.reset_parameters`."""
        for linear in (self.linear1, self.linear2):
            if not linear.weight.is_meta:
                nn.init.normal_(linear.weight, std=(3 * linear.in_features) ** -0.5)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.linear2(self._activated(self.linear1(x)))

    def prepare(self) -> Callable[[Tensor], Tensor]:
        """A function equal to `forward` for few rows, (B, D), while the weights stay as they are."""
        first = prepared_linear(self.linear1.weight, self.linear1.bias)
        second = prepared_linear(self.linear2.weight, self.linear2.bias)
        return lambda x: second(self._activated(first(x)))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.activation == GATED:
            opening, value = hidden.chunk(2, -1)
            return nn.functional.silu(opening) * value
        return ACTIVATIONS[self.activation](hidden)


def prepared_linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A function equal to `torch.nn.functional.linear` without gradients, for few rows (B, N) and fixed weights.

    The product of a matrix with a single vector is bound by reading the matrix. On a processor NumPy's is measured one
    and a half times as fast as torch's (benchmarks/speed_attention.py), in the layout whose inner loop is the
    longer side.

    Args:
        weight: (M, N).
        bias: (M,) or None.

    >>> prepared_linear(torch.tensor([[1.0, 2.0]]), None)(torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return lambda x: nn.functional.linear(x, weight, bias)
    wide = weight.shape[0] >= weight.shape[1]
    matrix = (weight.t().contiguous() if wide else weight.contiguous()).numpy()

    def multiply(x: Tensor) -> Tensor:
        if x.shape[0] != 1 or x.dtype != weight.dtype:
            return nn.functional.linear(x, weight, bias)
        vector = x.detach().view(-1).numpy()
        product = torch.from_numpy((vector.dot(matrix) if wide else matrix.dot(vector))[None])
        return product if bias is None else product.add_(bias)

    return multiply
