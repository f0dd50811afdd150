"""A memory of keys and values written by addition: linear attention, in chunks and a step at a time."""

import torch
from torch import Tensor

from chainrule.layers.chunk_decays import chunk_decays, into_chunks
from chainrule.layers.scan import linear_scan


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

    and the memories between chunks are a linear recurrence (`linear_scan`). The cost is
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
    after = linear_scan(through.flatten(0, 1)[..., None, None], written.flatten(0, 1), state.flatten(0, 1))
    after = after.unflatten(0, (batch, heads))
    before = torch.cat([state.unsqueeze(2), after[:, :, :-1]], 2)
    o = ((q @ k.mT) * within) @ v + (q * from_start.unsqueeze(-1)) @ before
    return o.flatten(2, 3)[:, :, :time], after[:, :, -1].clone()


def sum_rule_step(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Write one value and read one query.

    Args:
        q: (B, H, D_k).
        k: (B, H, D_k).
        v: (B, H, D_v).
        decay: a, (B, H), or (H,) for all rows.
        state: S, (B, H, D_k, D_v).

    Returns:
        o (B, H, D_v) and the new S.
    """
    state = torch.addcmul(k.unsqueeze(3) * v.unsqueeze(2), state, decay[..., None, None])
    return (q.unsqueeze(2) @ state).squeeze(2), state
