"""Linear recurrences over all time steps at once: an associative scan, and memories in chunks of matrix products."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms

# Numbers in one step from which a CPU is faster step by step, in place, than by pairs with its further passes over
# memory. Measured on one thread; the pairs win below it and on other devices, where a step costs its launch.
WIDE_STEP = 768


def associative_scan(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    r"""Run the recurrence of `chainrule.layers.linear_scan` in O(log T) dependent operations.

    Two steps are one: :math:`(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1,\; a_2 b_1 + b_2)`. This product is associative, so
    T steps take O(T) arithmetic and O(T) memory (Blelloch 1990): pairs of neighbours are joined, the half as long
    recurrence is solved, and the steps between are filled in. Nothing is divided by and no logarithm is taken, so b and
    h may have any sign and a may be 0; products of :math:`|a_t| \le 1` cannot overflow.

    The gradient is the same recurrence from the last step to the first,
    :math:`\delta_t = g_t + a_{t+1} \odot \delta_{t+1}`, with
    :math:`\partial a_t = \delta_t \odot h_{t-1}` and :math:`\partial b_t = \delta_t`.
    """
    if not custom_gradients_work():
        return _from(a, b, initial)
    h: Tensor = _Scan.apply(a, b, initial)
    return h


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
        if _is_wide(b):
            h = torch.empty_like(b)
            _in_order(a.unbind(1), b.unbind(1), initial, h.unbind(1))
        else:
            h = _from(a, b, initial)
        ctx.save_for_backward(a, initial, h)
        return h

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, initial, h = ctx.saved_tensors
        if not h.shape[1]:
            return torch.zeros_like(a), gradient, torch.zeros_like(initial)
        if not records_or_transforms(gradient) and _is_wide(h):
            d = torch.empty_like(h)
            d_steps, last = d.unbind(1), gradient[:, -1]
            d_steps[-1].copy_(last)
            _in_order(a.unbind(1)[:0:-1], gradient.unbind(1)[-2::-1], last, d_steps[-2::-1])
        else:
            backwards = _from(a[:, 1:].flip(1), gradient[:, :-1].flip(1), gradient[:, -1])
            d = torch.cat([backwards.flip(1), gradient[:, -1:]], 1)
        d_a = None
        if ctx.needs_input_grad[0]:
            before = torch.cat([initial.unsqueeze(1), h[:, :-1]], 1)
            d_a = (d * before).sum_to_size(a.shape)
        return d_a, d, (a[:, 0] * d[:, 0]).sum_to_size(initial.shape)


def _is_wide(b: Tensor) -> bool:
    return b.device.type == "cpu" and b.numel() >= WIDE_STEP * b.shape[1] > 0


def _in_order(a: Sequence[Tensor], b: Sequence[Tensor], h: Tensor, out: Sequence[Tensor]) -> None:
    for a_t, b_t, h_t in zip(a, b, out, strict=True):
        h = torch.addcmul(b_t, a_t, h, out=h_t)


# narrow() where a slice may be the whole, and no flatten(): `is_grads_batched` supports neither aliases nor the latter.


def _from(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    """Run the scan in plain operations."""
    time = b.shape[1]
    if not time:
        return b
    first = b.narrow(1, 0, 1) + a.narrow(1, 0, 1) * initial.unsqueeze(1)
    return _by_pairs(a, torch.cat([first, b.narrow(1, 1, time - 1)], 1))


def _by_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Run the scan from zero, so that h_1 = b_1."""
    time, pairs = b.shape[1], b.shape[1] // 2
    if time == 1:
        return b
    a_second, b_second = a[:, 1::2], b[:, 1::2]
    second = _by_pairs(a_second * a[:, : 2 * pairs : 2], b_second + a_second * b[:, : 2 * pairs : 2])
    later = b[:, 2::2] + a[:, 2::2] * second.narrow(1, 0, (time - 1) // 2)
    first = torch.cat([b[:, :1], later], 1)
    joined = torch.stack([first.narrow(1, 0, pairs), second], 2).reshape(len(b), 2 * pairs, *b.shape[2:])
    return torch.cat([joined, first[:, pairs:]], 1) if time % 2 else joined


def into_chunks(part: Tensor, size: int) -> Tensor:
    """Cut time into chunks of `size` steps, the last filled up with zeros: (B, H, T, ...) to (B, H, n, size, ...).

    >>> into_chunks(torch.arange(1, 6).view(1, 1, 5), 3).tolist()
    [[[[1, 2, 3], [4, 5, 0]]]]
    """
    missing = -part.shape[2] % size
    if missing:
        part = torch.cat([part, part.new_zeros(*part.shape[:2], missing, *part.shape[3:])], 2)
    return part.unflatten(2, (-1, size))


def chunk_decays(log_decay: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the decay from each step of a chunk to each later one, and from the chunk's beginning.

    .. math:: D_{ij} = \prod_{s=j+1}^{i} a_s \;\; (j \le i), \qquad d_i = \prod_{s=1}^{i} a_s

    :math:`D_{ij} = 0` for j > i: the causal mask. Each logarithm is summed separately and is at most 0; the difference
    of two long cumulative sums would lose the digits of a short one after a strong decay, and its exponential would
    overflow above the diagonal.

    Args:
        log_decay: log a, (..., C), at most 0.

    Returns:
        D (..., C, C) and d (..., C).

    >>> [part.tolist() for part in chunk_decays(torch.tensor([0.5, 0.5]).log())]
    [[[1.0, 0.0], [0.5, 1.0]], [0.5, 0.25]]
    """
    size = log_decay.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
    rows = log_decay.unsqueeze(-1).expand(*log_decay.shape, size)  # [i, j] = log a_i
    sums = rows.masked_fill(~ones.tril(-1), 0).cumsum(-2)
    return sums.masked_fill(~ones.tril(), -torch.inf).exp(), log_decay.cumsum(-1).exp()


def sum_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk_size: int
) -> tuple[Tensor, Tensor]:
    r"""Write T values and read T queries.

    .. math::
        S_t &= a_t S_{t-1} + k_t v_t^\top \\
        o_t &= S_t^\top q_t

    In a chunk of C steps that begins with the memory S, with D and d of `chunk_decays`,

    .. math::
        O &= (Q K^\top \odot D)\, V + \operatorname{diag}(d)\, Q S \\
        S' &= d_C S + K^\top \operatorname{diag}(D_{C\cdot})\, V

    and the memories between chunks are a linear recurrence (`chainrule.layers.linear_scan`). The cost is
    :math:`O(T (C + D_k) D_v)` a head, and no T × T matrix is made.

    Args:
        q: (B, H, T, D_k).
        k: (B, H, T, D_k).
        v: (B, H, T, D_v).
        log_decay: log a, at most 0: (B or 1, H or 1, T).
        state: S_0, (B, H, D_k, D_v).
        chunk_size: C.

    Returns:
        o (B, H, T, D_v) and S_T.
    """
    batch, heads, time, _ = q.shape
    size = min(chunk_size, time)
    q, k, v = (into_chunks(part, size) for part in (q, k, v))  # (B, H, n, C, D)
    within, from_start = chunk_decays(into_chunks(log_decay, size))
    to_end = within[..., -1, :].unsqueeze(-1)
    written = (k * to_end).mT @ v  # (B, H, n, D_k, D_v)
    through = from_start[..., -1].expand(batch, heads, -1)
    after = associative_scan(through.flatten(0, 1)[..., None, None], written.flatten(0, 1), state.flatten(0, 1))
    after = after.unflatten(0, (batch, heads))
    before = torch.cat([state.unsqueeze(2), after[:, :, :-1]], 2)
    o = ((q @ k.mT) * within) @ v + (q * from_start.unsqueeze(-1)) @ before
    return o.flatten(2, 3)[:, :, :time], after[:, :, -1].clone()


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor, state: Tensor, chunk_size: int
) -> tuple[Tensor, Tensor]:
    r"""Write T values, each replacing the value that the memory holds for its key, and read T queries.

    .. math::
        u_t &= \beta_t (v_t - a_t S_{t-1}^\top k_t) \\
        S_t &= a_t S_{t-1} + k_t u_t^\top \\
        o_t &= S_t^\top q_t

    In a chunk of C steps that begins with the memory S, the corrections solve a triangular system (the WY form of
    Yang et al. 2024, with the decay of Yang, Kautz & Hatamizadeh 2025); D and d are as in `chunk_decays`:

    .. math::
        L_{ij} &= \beta_i D_{ij}\, k_i^\top k_j \;\; (j < i) \\
        (I + L)\, U &= \operatorname{diag}(\beta)\,(V - \operatorname{diag}(d)\, K S) \\
        O &= (Q K^\top \odot D)\, U + \operatorname{diag}(d)\, Q S \\
        S' &= d_C S + K^\top \operatorname{diag}(D_{C\cdot})\, U

    With :math:`\beta \in [0, 1]`, :math:`a \in [0, 1]` and :math:`\|k\| \le 1` no step enlarges the memory. β is
    (B, H, T), the other arguments and results are as in `sum_rule`.
    """
    time, width = q.shape[2], v.shape[3]
    size = min(chunk_size, time)
    q, k, v = (into_chunks(part, size) for part in (q, k, v))  # (B, H, n, C, D)
    within, from_start = chunk_decays(into_chunks(log_decay, size))
    strength, from_start = into_chunks(strength, size).unsqueeze(-1), from_start.unsqueeze(-1)
    written = k * strength
    lower = ((written @ k.mT) * within).tril(-1)
    right = torch.cat([v * strength, written * from_start], -1)
    solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    fresh, erased = solved.split([width, k.shape[-1]], -1)  # U = fresh − erased S
    scores, reads = (q @ k.mT) * within, q * from_start
    to_end = (k * within[..., -1, :].unsqueeze(-1)).mT
    through = from_start[:, :, :, -1:]  # (B, H, n, 1, 1)
    outputs = []
    # unbind, as the gradient of an index is as large as the whole, for each chunk.
    chunks = (part.unbind(2) for part in (fresh, erased, scores, reads, to_end, through))
    for fresh_n, erased_n, scores_n, reads_n, to_end_n, through_n in zip(*chunks, strict=True):
        u = fresh_n - erased_n @ state
        outputs.append(scores_n @ u + reads_n @ state)
        state = through_n * state + to_end_n @ u
    return torch.cat(outputs, 2)[:, :, :time], state
