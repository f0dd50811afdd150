"""Linear attention with the delta rule: a new value replaces the one that is stored under its key."""

import torch
from torch import Tensor, nn

from chainrule.layers._chunk_decays import chunk_decays, into_chunks
from chainrule.layers._fast_weights import Decay, FastWeights, normalised_by_size


class DeltaNet(FastWeights):
    r"""Heads whose memory is corrected by the delta rule (Schlag et al. 2021, https://arxiv.org/abs/2102.11174).

    .. math::
        k_t &= \frac{\mathrm{silu}(W_k x_t)}{\lVert \mathrm{silu}(W_k x_t) \rVert}, \qquad
        \beta_t = \sigma(w_\beta^\top x_t + b_\beta) \\
        S_t &= a_t S_{t-1} + \beta_t\, k_t (v_t - a_t S_{t-1}^\top k_t)^\top \\
        o_t &= S_t^\top q_t

    Queries are treated as keys are, and o is divided by its root mean square over the units of the head. Where linear
    attention adds every value to those of similar keys, here the share β of the value that the memory returns for the
    key is replaced. `forward` takes chunks in the WY form of Yang et al. (2024, https://arxiv.org/abs/2406.06484).
    With a decay a, explained at `FastWeights`, this is the gated delta rule (Yang, Kautz & Hatamizadeh 2025,
    https://arxiv.org/abs/2412.06464).

    The state is S, (B, H, D, D).

    Args:
        model_size: N, of inputs and outputs.
        num_heads: H, a divisor of N; D = N / H.
        decay: a, `"none"`, `"fixed"` or `"gated"`.
        chunk_size: C, the steps that `forward` joins in one triangular system; it changes the speed alone (on a
            CPU, 32 was the fastest of 16 to 128).

    Raises:
        ValueError: a size is not positive, or H does not divide N.

    >>> layer = DeltaNet(8, num_heads=2)
    >>> y, state = layer(torch.zeros(3, 10, 8))
    >>> y.shape, state.shape
    (torch.Size([3, 10, 8]), torch.Size([3, 2, 4, 4]))
    """

    def __init__(self, model_size: int, num_heads: int = 4, *, decay: Decay = "none", chunk_size: int = 32):
        super().__init__(model_size, num_heads, decay=decay, chunk_size=chunk_size)
        self.strength = nn.Linear(model_size, num_heads)
        self.reset_parameters()

    @property
    def _state_width(self) -> int:
        return self.head_size

    def _own_gates(self) -> dict[str, nn.Linear]:
        return {"strength": self.strength}

    def _features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return _unit(q), _unit(k)

    def _chunk(self, parts: dict[str, Tensor], log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        strength = parts["strength"].sigmoid()
        q, k, v = parts["query"], parts["key"], parts["value"]
        o, state = delta_rule(q, k, v, strength, log_decay, state, self.chunk_size)
        return normalised_by_size(o), state

    def _one(self, parts: dict[str, Tensor], decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        strength = parts["strength"].sigmoid()
        o, state = delta_rule_step(parts["query"], parts["key"], parts["value"], strength, decay, state)
        return normalised_by_size(o), state


def _unit(x: Tensor) -> Tensor:
    """silu(x) scaled to length 1, or a little less near zero, where the direction is lost."""
    x = nn.functional.silu(x)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


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
