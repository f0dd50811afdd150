"""The position-wise network of a Transformer block."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels._plain_modules import may_prepare
from chainrule.kernels._row_vectors import RowMap, by_torch, prepared_gelu, prepared_linear
from chainrule.layers._linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "gelu-tanh": partial(nn.functional.gelu, approximate="tanh"),  # GPT-2's
    "relu": nn.functional.relu,
}
GATED = "swiglu"


class FeedForward(nn.Module):
    r"""Two linear layers with a non-linearity between, at each element alone.

    .. math:: y = W_2\, \mathrm{gelu}(W_1 x + b_1) + b_2 \qquad\text{or}\qquad
        y = W_2\,(\mathrm{silu}(a) \odot g) + b_2, \quad [a, g] = W_1 x + b_1

    the second is SwiGLU (Shazeer 2020).
    """

    def __init__(self, model_size: int, hidden_size: int | None = None, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        if activation != GATED and activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected one of {', '.join((*ACTIVATIONS, GATED))}, got {activation!r}")
        if hidden_size is None:
            hidden_size = 4 * model_size if activation != GATED else max(8 * model_size // 3, 1)
        check_sizes(model_size=model_size, hidden_size=hidden_size)
        self.activation = activation
        self.linear1 = Linear(model_size, hidden_size * (2 if activation == GATED else 1), bias=bias)
        self.linear2 = Linear(hidden_size, model_size, bias=bias)
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

    def prepare(self) -> RowMap:
        """Return a function equal to `forward`, for few rows (B, D) or a vector, while the weights stay as they are."""
        if not may_prepare(self):
            return by_torch(self)
        first = prepared_linear(self.linear1.weight, self.linear1.bias)
        second = prepared_linear(self.linear2.weight, self.linear2.bias)
        activated = prepared_gelu(self.linear1.weight) if self.activation == "gelu" else by_torch(self._activated)
        return lambda x: second(activated(first(x)))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.activation == GATED:
            opening, value = hidden.chunk(2, -1)
            return nn.functional.silu(opening) * value
        return ACTIVATIONS[self.activation](hidden)
