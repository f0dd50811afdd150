"""A memory of keys and values written by correction: the delta rule, in chunks and a step at a time."""

import torch
from torch import Tensor

from chainrule.layers.chunk_decays import chunk_decays, into_chunks


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor, state: Tensor, chunk_size: int
) -> tuple[Tensor, Tensor]:
    r"""Write T values, each in place of the one that the memory holds for its key, and read T queries.

    .. math::
        u_t &= \beta_t (v_t - a_t S_{t-1}^\top k_t) \\
        S_t &= a_t S_{t-1} + k_t u_t^\top \\
        o_t &= S_t^\top q_t

    In a chunk of C steps that begins with the memory S, the corrections solve a triangular system (the WY form of
    Yang et al. 2024, with the decay of Yang, Kautz & Hatamizadeh 2025); D and d are those of `chunk_decays`:

    .. math::
        L_{ij} &= \beta_i D_{ij}\, k_i^\top k_j \;\; (j < i) \\
        (I + L)\, U &= \operatorname{diag}(\beta)\,(V - \operatorname{diag}(d)\, K S) \\
        O &= (Q K^\top \odot D)\, U + \operatorname{diag}(d)\, Q S \\
        S' &= d_C S + K^\top \operatorname{diag}(D_{C\cdot})\, U

    With :math:`\beta \in [0, 1]`, :math:`a \in [0, 1]` and :math:`\|k\| \le 1` no step enlarges the memory.

    Args:
        q: (B, H, T, D_k).
        k: (B, H, T, D_k).
        v: (B, H, T, D_v).
        strength: β, (B, H, T).
        log_decay: log a, at most 0: (B or 1, H or 1, T).
        state: S_0, (B, H, D_k, D_v).
        chunk_size: C.

    Returns:
        o (B, H, T, D_v) and S_T.
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


def delta_rule_step(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Write one value and read one query.

    Args:
        q: (B, H, D_k).
        k: (B, H, D_k).
        v: (B, H, D_v).
        strength: β, (B, H).
        decay: a, (B, H), or (H,) for all rows.
        state: S, (B, H, D_k, D_v).

    Returns:
        o (B, H, D_v) and the new S.
    """
    state = state * decay[..., None, None]
    u = strength.unsqueeze(2) * (v - (k.unsqueeze(2) @ state).squeeze(2))
    state = torch.addcmul(state, k.unsqueeze(3), u.unsqueeze(2))
    return (q.unsqueeze(2) @ state).squeeze(2), state
