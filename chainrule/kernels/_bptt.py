r"""Backpropagation through time, written out: parts that the recurrences share.

The gradient of a recurrence takes the projected inputs of all time steps at once and runs one layer in one direction.
All arrays are flat (`_packing`): R = Σ_t b_t rows, step after step, the b_t rows that are still running
first. With local gradients g_t = ∂L/∂h_t as they arrive from above, and D_t the gradient at the pre-activation,

.. math:: \delta_t = g_t + J_{t+1}^\top \delta_{t+1}, \qquad
          \partial L/\partial W_{hh} = \sum_t (D_t \delta_t)\, h_{t-1}^\top,

so only the products with W_hh run step by step; the sum over t is one matrix product over all R rows, as are the
gradients of W_ih, which the caller's projection takes care of. Under bfloat16 or float16 autocast the matrix products
run in that type, while cell states, gates and their gradients stay in float32.

Each recurrence is written a second time, cell by cell in plain operations. That form is run where autograd records the
backward pass (`create_graph=True`), so that derivatives of any order exist, and inside transforms such as `vmap`.
It needs the activations that the first pass kept, and no copy of the projected inputs: a `placeholder` leads to
them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._products import onednn_linear, packs


def previous(first: Tensor, flat: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return the initial states of each step: `first` at step 0, then the states of the rows still running.

    first: (B, M), the initial state; flat: (R, M), the states after each step.
    """
    before = [first.to(flat.dtype), *flat.split(sizes)]
    return [h[:size] for h, size in zip(before, sizes, strict=False)]


def weight_gradient(d: Tensor, first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """Σ_t D_t δ_t h_{t−1}ᵀ, one product over all steps.

    d: (R, K), gradients at the pre-activations; first: (B, M); flat: (R, M). Returns (K, M).
    """
    rows = sizes[0]
    if rows != sizes[-1]:
        return torch.mm(d.t(), torch.cat(previous(first, flat, sizes)))
    start = torch.mm(d[:rows].t(), first[:rows].to(flat.dtype))  # all but the first step without a copy of the states
    return torch.addmm(start, d[rows:].t(), flat[:-rows])


def last(first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """Return the state of each row after its own last step, (B, M); a row without any step keeps its initial state."""
    # Rows end in order, the shortest first: row r ends at the last step whose size exceeds r.
    parts, running, end = [], 0, len(flat)
    for size in reversed(sizes):
        if size > running:
            parts.append(flat[end - size + running : end])
            running = size
        end -= size
    parts.append(first[running:].to(flat.dtype))
    return torch.cat(parts)


def forwards(sizes: list[int], *flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the slices of several flat arrays, time step by time step."""
    return zip(*(array.split(sizes) for array in flat), strict=True)


def backwards(sizes: list[int], *flat: Tensor | list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the slices of flat arrays, last step first; a list holds slices already."""
    steps = (array if isinstance(array, list) else array.split(sizes) for array in flat)
    return zip(*(reversed(slices) for slices in steps), strict=True)


def wide_dtype(projected: Tensor) -> torch.dtype:
    """Return the type in which gates and cells are kept: the projection's own, but never less than float32."""
    return torch.float32 if projected.dtype in (torch.bfloat16, torch.float16) else projected.dtype


def tanh(a: Tensor, out: Tensor) -> Tensor:
    """tanh(a) into `out`, which may be `a`.

    On a CPU in float32 it is taken as 2σ(2a) − 1: equal to within 2e-7, and a third of the time, since torch's sigmoid
    is vectorised and its tanh is not.
    """
    if a.dtype == torch.float32 and a.device.type == "cpu":
        return torch.mul(a, 2, out=out).sigmoid_().mul_(2).sub_(1)
    return torch.tanh(a, out=out)


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # d * y * (1 - y)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # d * (1 - y * y)


def lstm_forward(
    sigmoids: Sequence[Tensor], gates: Sequence[Tensor], c_prev: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor
) -> None:
    """Turn the pre-activations of an LSTM's gates i, f, g, o into activations, in place, and write c, tanh c and h.

    `sigmoids` are the parts of the same memory that get a sigmoid.
    """
    i, f, g, o = gates
    for part in sigmoids:
        part.sigmoid_()
    tanh(g, out=g)
    torch.mul(f, c_prev, out=c).addcmul_(i, g)
    torch.mul(o, tanh(c, out=tanh_c), out=h)


def lstm_backward(
    gates: Sequence[Tensor], c_prev: Tensor, tanh_c: Tensor, dh: Tensor, dc: Tensor, scratch: Tensor,
    d_gates: Sequence[Tensor],
) -> None:  # fmt: skip
    """Write the gradients at the pre-activations of i, f, g, o from those at h and c; dc becomes that at `c_prev`."""
    (i, f, g, o), (d_i, d_f, d_g, d_o), s = gates, d_gates, scratch
    dc.add_(_tanh_backward(torch.mul(dh, o, out=s), tanh_c, grad_input=s))
    d_o.copy_(_sigmoid_backward(torch.mul(dh, tanh_c, out=s), o, grad_input=s))
    d_i.copy_(_sigmoid_backward(torch.mul(dc, g, out=s), i, grad_input=s))
    d_f.copy_(_sigmoid_backward(torch.mul(dc, c_prev, out=s), f, grad_input=s))
    d_g.copy_(_tanh_backward(torch.mul(dc, i, out=s), g, grad_input=s))
    dc.mul_(f)


LEAST_STEPS = 8  # fewer products do not pay for laying the weight out
LEAST_FLOAT32 = 2**19  # numbers in a float32 weight: below, a plain product that adds in the same call is faster


class Product:
    """x ↦ x Wᵀ, taken once a time step in W's type, and added to or stored in an array of the wide type.

    On a CPU the weight is laid out for oneDNN's kernel once, where a plain product would do so at every step: with two
    threads and 32 rows this halves the time of a float32 product and takes a third off a bfloat16 one
    (benchmarks/LOG.md). The operators are torch's own, those that torch.compile calls; where they are missing, plain
    products do the same work.

    Args:
        weight: (K, M).
        rows: the most rows that a step has.
        steps: how many steps there are.
        wide: the type of the sums.
    """

    def __init__(self, weight: Tensor, rows: int, steps: int, wide: torch.dtype):
        self._weight = weight
        self._mixed = weight.dtype != wide
        self._packed = None
        if rows > 1 and steps >= LEAST_STEPS and _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)

    def add(self, addend: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """addend + x Wᵀ into `out`."""
        if self._packed is None and not self._mixed:
            return torch.addmm(addend, x, self._weight.t(), out=out)
        return torch.add(addend, self._of(x), out=out)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        """x Wᵀ into `out`."""
        if self._packed is None and not self._mixed:
            return torch.mm(x, self._weight.t(), out=out)
        return out.copy_(self._of(x))

    def _of(self, x: Tensor) -> Tensor:
        if self._packed is None:
            return torch.mm(x, self._weight.t())
        return onednn_linear(x, self._packed)


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    if weight.dtype == torch.bfloat16:
        return packs(torch.bfloat16)
    if weight.dtype != torch.float32 or not packs(torch.float32):
        return False
    return weight.numel() >= LEAST_FLOAT32


_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # d * f'(a) from the output y = f(a)
    "sigmoid": lambda d, y: d * y * (1 - y),
    "tanh": lambda d, y: d * (1 - y * y),
    "relu": lambda d, y: d * (y > 0),
    "identity": lambda d, y: d,
}


def placeholder(x: Tensor) -> Tensor:
    """Zeros in the shape of x that take no memory and pass gradients on to x."""
    zeros: Tensor = _Placeholder.apply(x)
    return zeros


def known_activation(function: str, a: Tensor, value: Tensor) -> Tensor:
    """Return the known value of f(a), with the derivatives of f at a."""
    y: Tensor = _Known.apply(a, value, function)
    return y


def gradients_again(
    plain: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradient at each input of a plain function, itself differentiable."""
    with torch.enable_grad():
        # Aliases: one input may depend on another, as a state does on the weights, and each gradient is a partial one.
        own = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
        pairs = [(y, d) for y, d in zip(plain(*own), gradients, strict=True) if y.requires_grad]
        wanted = [x for x in own if x is not None and x.requires_grad]
        outputs, weights = zip(*pairs, strict=True)
        derivatives = iter(torch.autograd.grad(outputs, wanted, weights, create_graph=True, allow_unused=True))
        return [next(derivatives) if x is not None and x.requires_grad else None for x in own]


class _Placeholder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)  # no zeros are added to the gradient that x has in the first place
        return x.new_zeros(()).expand(x.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Known(torch.autograd.Function):
    generate_vmap_rule = True  # for torch.vmap over torch.autograd.grad, which batches a backward pass alone

    @staticmethod
    def forward(a: Tensor, value: Tensor, function: str) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.function = inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return _SLOPES[ctx.function](gradient, y), None, None
