"""Memories of linear attention and of the delta rule over many steps, in chunks that are products of matrices."""

import torch
from torch import Tensor

from chainrule.kernels._scan import associative_scan


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
