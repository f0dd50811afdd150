"""Linear attention: a sum over the past of constant size replaces the softmax over all of it."""

from typing import Literal

import torch
from torch import Tensor, nn

from chainrule.kernels._chunked_rules import sum_rule
from chainrule.layers._fast_weights import Decay, FastWeights, normalised_by_size

FeatureMap = Literal["elu", "identity"]
GUARD = 1e-6  # added to the denominator: keys and queries far below zero have features near 0


class LinearAttention(FastWeights):
    r"""Causal linear attention with H heads (Katharopoulos et al. 2020, https://arxiv.org/abs/2006.16236).

    .. math::
        S_t &= a_t S_{t-1} + \phi(k_t)\, v_t^\top, \qquad z_t = a_t z_{t-1} + \phi(k_t) \\
        o_t &= \frac{S_t^\top \phi(q_t)}{z_t^\top \phi(q_t) + 10^{-6}}

    With the feature map `"elu"`, :math:`\phi(x) = \mathrm{elu}(x) + 1 > 0`: o is a mean of the values with positive
    weights. With `"identity"`, weights have any sign; there is no denominator, keys are divided by
    :math:`\sqrt{D}`, and o by its root mean square over the D units of the head, as in RetNet (Sun et al. 2023,
    https://arxiv.org/abs/2307.08621).

    The decay a is explained at `FastWeights`. Without one the sums grow with every element: in float32, an element adds
    nothing more after about :math:`2^{24}` others, so that an endless stream needs a decay.

    The state is S, with z as a last column: (B, H, D, D + 1), or (B, H, D, D) with `"identity"`.

    Args:
        model_size: N, of inputs and outputs.
        num_heads: H, a divisor of N; D = N / H.
        feature_map: φ.
        decay: a, `"none"`, `"fixed"` or `"gated"`.
        chunk_size: C, the steps that `forward` joins in one matrix product; it changes the speed alone.

    >>> import torch
    >>> layer = LinearAttention(8, num_heads=2, decay="gated")
    >>> y, state = layer(torch.zeros(3, 10, 8))
    >>> y.shape, state.shape
    (torch.Size([3, 10, 8]), torch.Size([3, 2, 4, 5]))
    """

    def __init__(
        self,
        model_size: int,
        num_heads: int = 4,
        *,
        feature_map: FeatureMap = "elu",
        decay: Decay = "none",
        chunk_size: int = 64,
    ):
        super().__init__(model_size, num_heads, decay=decay, chunk_size=chunk_size)
        if feature_map not in ("elu", "identity"):
            raise ValueError(f"feature_map: expected 'elu' or 'identity', got {feature_map!r}")
        self.feature_map = feature_map
        self.reset_parameters()

    @property
    def _state_width(self) -> int:
        return self.head_size + (self.feature_map == "elu")

    def _own_gates(self) -> dict[str, nn.Linear]:
        return {}

    def _features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.feature_map == "identity":
            return q, k * self.head_size**-0.5
        return _positive(q), _positive(k)

    def _chunk(self, parts: dict[str, Tensor], log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        values = self._values(parts["value"])
        o, state = sum_rule(parts["query"], parts["key"], values, log_decay, state, self.chunk_size)
        return self._normalised(o), state

    def _one(self, parts: dict[str, Tensor], decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        o, state = sum_rule_step(parts["query"], parts["key"], self._values(parts["value"]), decay, state)
        return self._normalised(o), state

    def _values(self, v: Tensor) -> Tensor:
        """v, and a 1 to sum the keys with where they are the denominator."""
        return v if self.feature_map == "identity" else nn.functional.pad(v, (0, 1), value=1.0)

    def _normalised(self, o: Tensor) -> Tensor:
        if self.feature_map == "identity":
            return normalised_by_size(o)
        return o[..., :-1] / (o[..., -1:] + GUARD)


def _positive(x: Tensor) -> Tensor:
    """elu(x) + 1 = exp(min(x, 0)) + max(x, 0): far below zero it is e^x, where (e^x − 1) + 1 would round to 0."""
    above = x.relu()
    return (x - above).exp() + above


def sum_rule_step(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Write one value (B, H, D_v), and read one query (B, H, D_k): o (B, H, D_v) and the new S, (B, H, D_k, D_v)."""
    state = torch.addcmul(k.unsqueeze(3) * v.unsqueeze(2), state, decay[..., None, None])
    return (q.unsqueeze(2) @ state).squeeze(2), state
