"""Contribution of a recurrent layer's input to its pre-activations: W_ih x + b for all elements at once."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from chainrule.transforms import needs_plain_form

# Symbols up to which the gradient of a table is a matrix product; above, R row additions are cheaper.
ONE_HOT_PRODUCT_LIMIT = 2048


def symbols_of(x: Any) -> Tensor:
    """Symbols in the type that indexes a table; `ValueError` for what are none."""
    if not isinstance(x, Tensor):
        remedy = "pad it, and give lengths" if isinstance(x, PackedSequence) else "make it one with torch.as_tensor"
        raise ValueError(f"x: expected a tensor, got {type(x).__name__}: {remedy}")
    if x.dtype == torch.bool or x.is_floating_point() or x.is_complex():
        raise ValueError(f"x: expected integers that number symbols, got {x.dtype}: convert them with x.long()")
    return x.long()


def project(x: Tensor, weight_ih: Tensor, bias: Tensor | None) -> Tensor:
    """W_ih x + b, (R, G·M).

    x: (R, N) real features, or (R,) integers in [0, N) that stand for one-hot vectors: their product with W_ih is a
    look-up of its columns, and is done as one.
    """
    if x.is_floating_point():
        return torch.nn.functional.linear(x, weight_ih, bias)
    if len(x) < weight_ih.shape[1]:  # fewer elements than symbols, as in a step: read their columns alone
        columns = weight_ih.index_select(1, x).t()
        return columns if bias is None else columns + bias
    table = weight_ih.t() if bias is None else weight_ih.t() + bias  # (N, G·M)
    if torch.is_autocast_enabled(x.device.type):
        table = table.to(torch.get_autocast_dtype(x.device.type))
    if needs_plain_form():
        return table.index_select(0, x)
    return _LookUp.apply(table, x)


class _LookUp(torch.autograd.Function):
    """table[symbols]; a small table's gradient is one product, one-hotᵀ times the gradient, not R row additions."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, symbols: Tensor) -> Tensor:
        ctx.save_for_backward(symbols)
        ctx.rows = table.shape[0]
        return table.index_select(0, symbols)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (symbols,) = ctx.saved_tensors
        if ctx.rows > ONE_HOT_PRODUCT_LIMIT:
            return gradient.new_zeros(ctx.rows, gradient.shape[1]).index_add_(0, symbols, gradient), None
        one_hot = gradient.new_zeros(ctx.rows, len(symbols))
        one_hot.scatter_(0, symbols.unsqueeze(0), 1.0)
        return torch.mm(one_hot, gradient), None
