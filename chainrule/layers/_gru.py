"""The gated recurrent unit layer in both conventions, and their gradients."""

from collections.abc import Sequence
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
    previous,
    tanh,
    weight_gradient,
    wide_dtype,
)
from chainrule.layers._linear import product
from chainrule.layers._recurrent import Backend, Recurrent


@final
class GRU(Recurrent):
    r"""A stack of gated recurrent units (Cho et al. 2014).

    .. math::
        r, z = \sigma(\cdot), \qquad h_t = (1 - z) \odot n + z \odot h_{t-1} \\
        n = \tanh(W_{in} x_t + b_{in} + r \odot (W_{hn} h_{t-1} + b_{hn})) \quad\text{(reset after the product)} \\
        n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}) \quad\text{(reset before the product)}

    Gates are in the order r, z, n, as in torch.nn; z keeps the old state. Arguments are those of `RNN`, without
    `nonlinearity`, and:

    Args:
        reset_after: True as in cuDNN and torch.nn.GRU, False as in Cho et al. The two are different
            functions of the same parameters.

    >>> output, state = GRU(3, 4, reset_after=False)(torch.zeros(2, 5, 3))
    >>> output.shape
    torch.Size([2, 5, 4])
    """

    kernel = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        reset_after: bool = True,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip
        self.reset_after = reset_after

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reset_after={self.reset_after}"

    def vendor_computes_this(self) -> bool:
        return self.reset_after

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        if not self.reset_after:
            return super()._early_bias(bias_ih, bias_hh)
        gates = 2 * self.hidden_size  # b_hn is multiplied by the reset gate
        return torch.cat([bias_ih[:gates] + bias_hh[:gates], bias_ih[gates:]])

    @property
    def compiled_kind(self) -> str:
        return "gru" if self.reset_after else "gru-before"

    def bias_hn(self, weights: Sequence[Tensor]) -> Tensor:
        """The bias that the reset gate multiplies, (M,); weights as for `input_bias`."""
        return weights[2][2 * self.hidden_size :] if self.bias else weights[0].new_zeros(self.hidden_size)

    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        if self.reset_after:
            return gru_reset_after(projected, weights[0], self.bias_hn(weights), state[0], sizes)
        return gru_reset_before(projected, weights[0], state[0], sizes)

    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        (h,), weight_hh, gates = state, weights[0], 2 * self.hidden_size
        p_rz, p_n = projected[:, :gates], projected[:, gates:]
        if self.reset_after:
            product = torch.mm(h, weight_hh.t())
            r, z = torch.sigmoid(p_rz + product[:, :gates]).chunk(2, 1)
            n = torch.tanh(p_n + r * (product[:, gates:] + self.bias_hn(weights)))
        else:
            r, z = torch.sigmoid(torch.addmm(p_rz, h, weight_hh[:gates].t())).chunk(2, 1)
            n = torch.tanh(torch.addmm(p_n, r * h, weight_hh[gates:].t()))
        return ((1 - z) * n + z * h,)


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # d * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # d * (1 - y * y)


def gru_reset_after(
    projected: Tensor, weight_hh: Tensor, bias_hn: Tensor, h0: Tensor, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    r"""The reset gate after the product (what cuDNN and torch.nn.GRU compute).

    .. math::
        r, z = \sigma(a^{r,z}), \quad q = W_{hn} h_{t-1} + b_{hn}, \quad n = \tanh(W_{in} x_t + b_{in} + r \odot q) \\
        h_t = (1 - z) \odot n + z \odot h_{t-1}

    Args:
        projected: (R, 3M), order r, z, n: W_ih x_t + b_ih, with b_hh added for r and z.
        weight_hh: (3M, M).
        bias_hn: (M,), the bias inside the reset gate's reach.
        h0: (B, M), rows longest first.
        sizes: b_t, the rows running at each step.

    Returns:
        h of every step (R, M), and h of each row after its last step, (B, M).
    """
    if not custom_gradients_work():
        return _plain(projected, weight_hh, bias_hn, h0, sizes)
    h, h_last = _ResetAfter.apply(projected, placeholder(projected), weight_hh, bias_hn, h0, sizes)
    return h, h_last


def gru_reset_before(projected: Tensor, weight_hh: Tensor, h0: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
    r"""The reset gate before the product (Cho et al. 2014).

    .. math::
        r, z = \sigma(a^{r,z}), \quad n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}) \\
        h_t = (1 - z) \odot n + z \odot h_{t-1}

    Arguments and results are those of `gru_reset_after`, with all of b_hh in `projected`.
    """
    if not custom_gradients_work():
        return _plain(projected, weight_hh, None, h0, sizes)
    h, h_last = _ResetBefore.apply(projected, placeholder(projected), weight_hh, h0, sizes)
    return h, h_last


def _plain(
    projected: Tensor,
    weight_hh: Tensor,
    bias_hn: Tensor | None,
    h0: Tensor,
    sizes: list[int],
    known: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Either recurrence in plain operations, without `bias_hn` that with the reset gate before the product.

    known: r and z (R, 2M), and n (R, M), of every step, where projected is a placeholder.
    """
    low, wide, size = projected.dtype, wide_dtype(projected), weight_hh.shape[1]
    w_rz, w_n = weight_hh.to(low).split([2 * size, size])
    gates = [(None, None)] * len(sizes) if known is None else zip(*(part.split(sizes) for part in known), strict=True)
    h, steps = h0.to(wide), []
    for p_t, (known_rz, known_n) in zip(projected.split(sizes), gates, strict=True):
        p_rz, p_n = p_t.to(wide).split([2 * size, size], 1)
        h = h[: len(p_t)]
        r, z = activation("sigmoid", p_rz + (h.to(low) @ w_rz.t()).to(wide), known_rz).chunk(2, 1)
        if bias_hn is None:
            q = ((r * h).to(low) @ w_n.t()).to(wide)
        else:
            q = r * ((h.to(low) @ w_n.t()).to(wide) + bias_hn.to(wide))
        n = activation("tanh", p_n + q, known_n)
        h = (1 - z) * n + z * h
        steps.append(h)
    flat = torch.cat(steps)
    return flat.to(low), last(h0, flat, sizes).to(h0.dtype)


class _ResetAfter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        anchor: Tensor,
        weight_hh: Tensor,
        bias_hn: Tensor,
        h0: Tensor,
        sizes: list[int],
    ) -> Any:
        low, wide = projected.dtype, wide_dtype(projected)
        size = weight_hh.shape[1]
        rows = projected.shape[0]
        product = projected.new_empty(rows, 3 * size, dtype=wide)  # becomes r, z and q
        n = projected.new_empty(rows, size, dtype=wide)
        h = torch.empty_like(n)
        h_low = h if low == wide else torch.empty_like(n, dtype=low)
        bias = torch.cat([bias_hn.new_zeros(2 * size), bias_hn]).to(wide)
        recurrent = Product(weight_hh.to(low), h0.shape[0], len(sizes), wide)
        h_prev, h_prev_low = h0.to(wide), h0.to(low)
        r, z, q = product.split(size, 1)
        for p_rz, p_n, all_t, rz_t, r_t, z_t, q_t, n_t, h_t, h_low_t in forwards(
            sizes, *projected.split([2 * size, size], 1), product, product[:, : 2 * size], r, z, q, n, h, h_low
        ):
            running = len(p_n)
            recurrent.add(bias, h_prev_low[:running], out=all_t)
            rz_t.add_(p_rz).sigmoid_()
            tanh(torch.addcmul(p_n, r_t, q_t, out=n_t), out=n_t)
            h_prev = torch.lerp(n_t, h_prev[:running], z_t, out=h_t)
            h_prev_low = h_t if low == wide else h_low_t.copy_(h_t)
        ctx.save_for_backward(anchor, weight_hh, bias_hn, h0, product, n, h, h_low)
        ctx.sizes = sizes
        return h_low, last(h0, h, sizes).to(h0.dtype)

    @staticmethod
    def backward(ctx: Any, local: Tensor, dh_last: Tensor) -> Any:
        anchor, weight_hh, bias_hn, h0, product, n, h, h_low = ctx.saved_tensors
        sizes, size, low, wide = ctx.sizes, h.shape[1], h_low.dtype, h.dtype
        if records_or_transforms(local, dh_last):
            plain = partial(_plain, sizes=sizes, known=(product[:, : 2 * size], n))
            found = gradients_again(plain, (anchor, weight_hh, bias_hn, h0), (local, dh_last))
            return found[0], None, *found[1:], None
        d = product.new_empty(len(product), 3 * size, dtype=low)  # at r, z and q: what W_hh sees
        d_n = torch.empty_like(h_low)
        dh = dh_last.to(wide, copy=True)
        scratch, kept = torch.empty_like(dh), torch.empty_like(dh)
        recurrent = Product(weight_hh.to(low).t(), dh.shape[0], len(sizes), wide)
        for r, z, q, n_t, h_prev, d_t, d_r, d_z, d_q, d_n_t, local_t in backwards(
            sizes, *product.split(size, 1), n, previous(h0, h, sizes), d, *d.split(size, 1), d_n, local
        ):
            running = len(local_t)
            dh_t, s, k = dh[:running], scratch[:running], kept[:running]
            dh_t.add_(local_t)  # δ_t, complete
            torch.mul(dh_t, z, out=k)
            torch.sub(h_prev, n_t, out=s).mul_(dh_t)
            d_z.copy_(_sigmoid_backward(s, z, grad_input=s))
            _tanh_backward(torch.sub(dh_t, k, out=s), n_t, grad_input=s)
            d_n_t.copy_(s)
            torch.mul(s, r, out=d_q)
            d_r.copy_(_sigmoid_backward(s.mul_(q), r, grad_input=s))
            recurrent.add(k, d_t, out=dh_t)
        d_weight = weight_gradient(d, h0, h_low, sizes).to(weight_hh.dtype)
        d_bias = d[:, 2 * size :].sum(0, dtype=wide).to(weight_hh.dtype)
        d_projected = torch.cat([d[:, : 2 * size], d_n], 1)
        return d_projected, None, d_weight, d_bias, dh.to(h0.dtype), None


class _ResetBefore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, anchor: Tensor, weight_hh: Tensor, h0: Tensor, sizes: list[int]) -> Any:
        low, wide = projected.dtype, wide_dtype(projected)
        size = weight_hh.shape[1]
        rows = projected.shape[0]
        rz = projected.new_empty(rows, 2 * size, dtype=wide)
        n = projected.new_empty(rows, size, dtype=wide)
        h = torch.empty_like(n)
        h_low = h if low == wide else torch.empty_like(n, dtype=low)
        reset = torch.empty_like(h_low)  # r ⊙ h_{t-1}
        weight = weight_hh.to(low)
        gate = Product(weight[: 2 * size], h0.shape[0], len(sizes), wide)
        candidate = Product(weight[2 * size :], h0.shape[0], len(sizes), wide)
        h_prev, h_prev_low = h0.to(wide), h0.to(low)
        r, z = rz.split(size, 1)
        for p_rz, p_n, rz_t, r_t, z_t, n_t, h_t, h_low_t, reset_t in forwards(
            sizes, projected[:, : 2 * size], projected[:, 2 * size :], rz, r, z, n, h, h_low, reset
        ):
            running = len(p_n)
            h_prev = h_prev[:running]
            gate.add(p_rz, h_prev_low[:running], out=rz_t).sigmoid_()
            torch.mul(r_t, h_prev, out=reset_t)
            tanh(candidate.add(p_n, reset_t, out=n_t), out=n_t)
            h_prev = torch.lerp(n_t, h_prev, z_t, out=h_t)
            h_prev_low = h_t if low == wide else h_low_t.copy_(h_t)
        ctx.save_for_backward(anchor, weight_hh, h0, rz, n, h, h_low, reset)
        ctx.sizes = sizes
        return h_low, last(h0, h, sizes).to(h0.dtype)

    @staticmethod
    def backward(ctx: Any, local: Tensor, dh_last: Tensor) -> Any:
        anchor, weight_hh, h0, rz, n, h, h_low, reset = ctx.saved_tensors
        sizes, size, low, wide = ctx.sizes, h.shape[1], h_low.dtype, h.dtype
        if records_or_transforms(local, dh_last):
            after = partial(_plain, sizes=sizes, known=(rz, n))
            found = gradients_again(lambda p, w, h: after(p, w, None, h), (anchor, weight_hh, h0), (local, dh_last))
            return found[0], None, *found[1:], None
        d = rz.new_empty(len(rz), 3 * size, dtype=low)
        dh = dh_last.to(wide, copy=True)
        scratch, kept = torch.empty_like(dh), torch.empty_like(dh)
        weight = weight_hh.to(low)
        gate = Product(weight[: 2 * size].t(), dh.shape[0], len(sizes), wide)
        candidate = Product(weight[2 * size :].t(), dh.shape[0], len(sizes), wide)
        for r, z, n_t, h_prev, d_rz, d_r, d_z, d_n, local_t in backwards(
            sizes, *rz.split(size, 1), n, previous(h0, h, sizes), d[:, : 2 * size], *d.split(size, 1), local
        ):
            running = len(local_t)
            dh_t, s, k = dh[:running], scratch[:running], kept[:running]
            dh_t.add_(local_t)  # δ_t, complete
            torch.mul(dh_t, z, out=k)
            torch.sub(h_prev, n_t, out=s).mul_(dh_t)
            d_z.copy_(_sigmoid_backward(s, z, grad_input=s))
            d_n.copy_(_tanh_backward(torch.sub(dh_t, k, out=s), n_t, grad_input=s))
            candidate.into(d_n, out=s)  # at r ⊙ h_{t-1}
            k.addcmul_(s, r)
            d_r.copy_(_sigmoid_backward(s.mul_(h_prev), r, grad_input=s))
            gate.add(k, d_rz, out=dh_t)
        d_gates = weight_gradient(d[:, : 2 * size], h0, h_low, sizes)
        d_weight = torch.cat([d_gates, product(d[:, 2 * size :].t(), reset.t())])
        return d, None, d_weight.to(weight_hh.dtype), dh.to(h0.dtype), None
