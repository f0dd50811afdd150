"""Linear attention with the delta rule: a new value replaces the one that is stored under its key."""

import torch
from torch import Tensor, nn

from chainrule.kernels._chunked_rules import delta_rule
from chainrule.layers._fast_weights import Decay, FastWeights, normalised_by_size


class DeltaNet(FastWeights):
    r"""Heads whose memory is corrected by the delta rule (Schlag et al. 2021, https://arxiv.org/abs/2102.11174).

    .. math::
        k_t &= \frac{\mathrm{silu}(W_k x_t)}{\lVert \mathrm{silu}(W_k x_t) \rVert}, \qquad
        \beta_t = \sigma(w_\beta^\top x_t + b_\beta) \\
        S_t &= a_t S_{t-1} + \beta_t\, k_t (v_t - a_t S_{t-1}^\top k_t)^\top \\
        o_t &= S_t^\top q_t

    Queries are treated as keys are, and o is divided by its root mean square over the units of the head. Where linear
    attention adds every value to the values of similar keys, here the share β of the value that the memory returns for
    the key is replaced. `forward` takes chunks in the WY form of Yang et al. (2024, https://arxiv.org/abs/2406.06484).
    With a decay a, explained at `FastWeights`, this is the gated delta rule (Yang, Kautz & Hatamizadeh 2025,
    https://arxiv.org/abs/2412.06464).

    The state is S, (B, H, D, D).

    Args:
        model_size: N, of inputs and outputs.
        num_heads: H, a divisor of N; D = N / H.
        decay: a, `"none"`, `"fixed"` or `"gated"`.
        chunk_size: C, the steps that `forward` joins in one triangular system; it changes the speed alone (on a
            CPU, 32 was the fastest of 16 to 128).

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


def delta_rule_step(
    q: Tensor, k: Tensor, v: Tensor, strength: Tensor, decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Write one value (B, H, D_v), and read one query (B, H, D_k): o (B, H, D_v) and the new S, (B, H, D_k, D_v)."""
    state = state * decay[..., None, None]
    u = strength.unsqueeze(2) * (v - (k.unsqueeze(2) @ state).squeeze(2))
    state = torch.addcmul(state, k.unsqueeze(3), u.unsqueeze(2))
    return (q.unsqueeze(2) @ state).squeeze(2), state
