"""The simple recurrent layer, and its gradient."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from chainrule._modes import custom_gradients_work, records_or_transforms
from chainrule.layers._bptt import (
    Product,
    activation,
    backwards,
    forwards,
    gradients_again,
    last,
    placeholder,
    tanh,
    weight_gradient,
    wide_dtype,
)
from chainrule.layers._recurrent import Backend, Recurrent

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda a: a}


@final
class RNN(Recurrent):
    r"""A stack of simple recurrent layers (Elman 1990).

    .. math:: h_t = f(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Args:
        input_size: N, features of an element (or the number of symbols, for integer input).
        hidden_size: M, units of each layer.
        num_layers: layers; each reads the h of the one below.
        nonlinearity: f: tanh, relu, sigmoid or identity.
        bias: whether the layers have b_ih and b_hh.
        batch_first: always True here.
        dropout: probability of zeroing an element of h between layers, in training.
        bidirectional: add a second pass from each row's end to its start.
        backend: "vendor" forces the fused kernel, "bptt" the library's own recurrence; "auto" takes the faster.

    >>> layer = RNN(3, 4)
    >>> output, state = layer(torch.zeros(2, 5, 3))
    >>> output.shape, state.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 1, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        if nonlinearity not in ACTIVATIONS:
            raise ValueError(f"nonlinearity: expected one of {', '.join(ACTIVATIONS)}, got {nonlinearity!r}")
        self.kernel = "RNN_RELU" if nonlinearity == "relu" else "RNN_TANH"  # the parameters are the same for any f
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity}"

    @property
    def compiled_kind(self) -> str:
        return self.nonlinearity

    def vendor_computes_this(self) -> bool:
        return self.nonlinearity in ("tanh", "relu")

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        return rnn(projected, weights[0], state[0], self.nonlinearity, sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (ACTIVATIONS[self.nonlinearity](torch.addmm(projected, state[0], weights[0].t())),)


# f in place, and d * f'(a) from the output y = f(a), both without a further array.
NONLINEARITIES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "tanh": (lambda a: tanh(a, out=a), lambda d, y, out: torch.ops.aten.tanh_backward.grad_input(d, y, grad_input=out)),
    "relu": (Tensor.relu_, lambda d, y, out: torch.ops.aten.threshold_backward.grad_input(d, y, 0, grad_input=out)),
    "sigmoid": (Tensor.sigmoid_, lambda d, y, out: torch.ops.aten.sigmoid_backward.grad_input(d, y, grad_input=out)),
    "identity": (lambda a: a, lambda d, y, out: out.copy_(d)),
}


def rnn(projected: Tensor, weight_hh: Tensor, h0: Tensor, nonlinearity: str, sizes: list[int]) -> tuple[Tensor, Tensor]:
    r"""Run the recurrence over projected inputs.

    .. math:: h_t = f(W_{ih} x_t + b_{ih} + b_{hh} + W_{hh} h_{t-1})

    Args:
        projected: (R, M), W_ih x_t + b_ih + b_hh for every real element.
        weight_hh: (M, M).
        h0: (B, M), rows longest first.
        nonlinearity: f, a key of `NONLINEARITIES`.
        sizes: b_t, the rows running at each step.

    Returns:
        h of every step (R, M), and h of each row after its last step, (B, M).
    """
    if not custom_gradients_work():
        return _plain(projected, weight_hh, h0, nonlinearity, sizes)
    h, h_last = _RNN.apply(projected, placeholder(projected), weight_hh, h0, nonlinearity, sizes)
    return h, h_last


def _plain(
    projected: Tensor, weight_hh: Tensor, h0: Tensor, nonlinearity: str, sizes: list[int], known: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence in plain operations; known: h of every step, where projected is a placeholder."""
    low, wide = projected.dtype, wide_dtype(projected)
    known_h = [None] * len(sizes) if known is None else known.split(sizes)
    h, steps = h0, []
    for p_t, known_t in zip(projected.split(sizes), known_h, strict=True):
        product = h[: len(p_t)].to(low) @ weight_hh.to(low).t()
        h = activation(nonlinearity, p_t.to(wide) + product.to(wide), known_t)
        steps.append(h)
    flat = torch.cat(steps)
    return flat.to(low), last(h0, flat, sizes).to(h0.dtype)


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        anchor: Tensor,
        weight_hh: Tensor,
        h0: Tensor,
        nonlinearity: str,
        sizes: list[int],
    ) -> Any:
        low, wide = projected.dtype, wide_dtype(projected)
        activate = NONLINEARITIES[nonlinearity][0]
        h = torch.empty_like(projected, dtype=wide)
        h_low = h if low == wide else torch.empty_like(projected)
        recurrent = Product(weight_hh.to(low), h0.shape[0], len(sizes), wide)
        h_prev = h0.to(low)
        for p_t, h_t, h_low_t in forwards(sizes, projected, h, h_low):
            activate(recurrent.add(p_t, h_prev[: len(p_t)], out=h_t))
            h_prev = h_t if low == wide else h_low_t.copy_(h_t)
        ctx.save_for_backward(anchor, weight_hh, h0, h, h_low)
        ctx.sizes, ctx.nonlinearity = sizes, nonlinearity
        return h_low, last(h0, h, sizes).to(h0.dtype)

    @staticmethod
    def backward(ctx: Any, local: Tensor, dh_last: Tensor) -> Any:
        anchor, weight_hh, h0, h, h_low = ctx.saved_tensors
        sizes = ctx.sizes
        if records_or_transforms(local, dh_last):
            plain = partial(_plain, nonlinearity=ctx.nonlinearity, sizes=sizes, known=h.detach())
            found = gradients_again(plain, (anchor, weight_hh, h0), (local, dh_last))
            return found[0], None, *found[1:], None, None
        slope = NONLINEARITIES[ctx.nonlinearity][1]
        d = torch.empty_like(h)  # D_t δ_t
        d_low = d if h.dtype == h_low.dtype else torch.empty_like(h_low)
        dh = dh_last.to(h.dtype, copy=True)
        recurrent = Product(weight_hh.to(h_low.dtype).t(), dh.shape[0], len(sizes), h.dtype)
        for h_t, d_t, d_low_t, local_t in backwards(sizes, h, d, d_low, local):
            dh_t = dh[: len(local_t)]
            dh_t.add_(local_t)  # δ_t, complete
            slope(dh_t, h_t, d_t)
            recurrent.into(d_t if d is d_low else d_low_t.copy_(d_t), out=dh_t)
        d_weight = weight_gradient(d_low, h0, h_low, sizes).to(weight_hh.dtype)
        return d_low, None, d_weight, dh.to(h0.dtype), None, None
