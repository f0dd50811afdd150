"""Layers whose memory is a matrix for each head, written with keys and values and read with queries."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.kernels import enabled
from chainrule.kernels._bptt import wide_dtype
from chainrule.kernels._scan import delta_rule, sum_rule
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._packing import real_steps
from chainrule.layers._sequence_layer import LayerStep, SequenceLayer, check_features, checked_tensor, stepping
from chainrule.option_error import OptionError, option
from chainrule.state import State

Decay = Literal["none", "fixed", "gated"]
GATE_TEMPERATURE = 16  # GLA's: a = σ(·)^(1/16), so that a gate halfway open still keeps 96% a step


class FastWeights(SequenceLayer, ABC):
    r"""H heads, each with a memory :math:`S_t` of constant size (Schlag et al. 2021: "fast weights").

    .. math:: q_t, k_t, v_t = W_q x_t, W_k x_t, W_v x_t \qquad y_t = W_o\,[o^1_t; \ldots; o^H_t]

    `LinearAttention` and `DeltaNet` say how S is written and read. Before a step is written, head h multiplies its
    memory with the decay :math:`a^h_t`:

    - `"none"`: 1.
    - `"fixed"`: :math:`1 - 2^{-5-h}`, h from 0 (RetNet, Sun et al. 2023).
    - `"gated"`: :math:`\sigma(w_h^\top x_t + b_h)^{1/16}`, one number a head (the scalar form of gated linear
      attention, Yang et al. 2024); new weights have the fixed decays at x = 0.

    `forward` works in chunks by matrix products, `step` writes and reads once, in time and memory that do not depend on
    the position. The memory is kept in float32 or wider, also under autocast.
    """

    def __init__(self, model_size: int, num_heads: int, *, decay: Decay, chunk_size: int):
        super().__init__()
        check_sizes(model_size=model_size, num_heads=num_heads, chunk_size=chunk_size)
        if model_size % num_heads:
            raise OptionError(
                "num_heads",
                f"expected a divisor of {option('model_size')} {model_size}, got {num_heads}",
                f"{_nearest_divisor(model_size, num_heads)} is one",
            )
        if decay not in ("none", "fixed", "gated"):
            raise ValueError(f"decay: expected 'none', 'fixed' or 'gated', got {decay!r}")
        self.model_size = model_size
        self.num_heads = num_heads
        self.head_size = model_size // num_heads
        self.decay = decay
        self.chunk_size = chunk_size
        self.query = nn.Linear(model_size, model_size)
        self.key = nn.Linear(model_size, model_size)
        self.value = nn.Linear(model_size, model_size)
        self.out_proj = nn.Linear(model_size, model_size)
        self.decay_gate = nn.Linear(model_size, num_heads) if decay == "gated" else None

    def reset_parameters(self) -> None:
        """Draw new weights with the variance of the input; biases are zero, except the gated decay's."""
        if self.query.weight.is_meta:
            return
        for layer in (*self._projections().values(), self.out_proj):
            nn.init.normal_(layer.weight, std=self.model_size**-0.5)
            nn.init.zeros_(layer.bias)
        if self.decay_gate is not None:
            bias = self.decay_gate.bias.data
            log_decay = GATE_TEMPERATURE * fixed_log_decay(bias)  # log σ(b)
            bias.copy_(log_decay - torch.log(-torch.expm1(log_decay)))

    @abstractmethod
    def _features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Feature maps of queries and keys, (..., D)."""

    @abstractmethod
    def _chunk(self, parts: dict[str, Tensor], log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the heads over all steps, (B, H, T, D), and the new memory."""

    def _step_by_step(self, parts: dict[str, Tensor], log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`_chunk` as its equation, one step after another."""
        outputs = []
        for t, decay in enumerate(log_decay.exp().unbind(2)):
            o, state = self._one({name: part[:, :, t] for name, part in parts.items()}, decay, state)
            outputs.append(o)
        return torch.stack(outputs, 2), state

    @abstractmethod
    def _one(self, parts: dict[str, Tensor], decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the heads at one step, (B, H, D), and the new memory."""

    @abstractmethod
    def _own_gates(self) -> dict[str, nn.Linear]:
        """Projections of x to one number a head, other than the decay, by their names in `parts`."""

    @property
    @abstractmethod
    def _state_width(self) -> int:
        """Columns of a head's memory."""

    def _projections(self) -> dict[str, nn.Linear]:
        """Every projection of x by name."""
        layers = {"query": self.query, "key": self.key, "value": self.value, **self._own_gates()}
        return layers if self.decay_gate is None else {**layers, "decay_gate": self.decay_gate}

    def initial_state(self, batch_size: int) -> Tensor:
        """Zeros."""
        weight = self.query.weight
        shape = (batch_size, self.num_heads, self.head_size, self._state_width)
        return torch.zeros(shape, dtype=wide_dtype(weight), device=weight.device)  # also where the weight is divided

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read a chunk of any length; arguments as for `SequenceLayer.forward`.

        x: (B, T, N). Returns (B, T, N) and the memory of each head.
        """
        check_features(x, "BT", self.model_size)
        state = (
            self.initial_state(len(x))
            if state is None
            else checked_tensor(state, len(x), self.num_heads, self.head_size, self._state_width)
        )
        if not x.shape[1]:
            return x, state
        real = real_steps(x, lengths)
        if real is not None:
            x = x.masked_fill(~real.unsqueeze(2), 0)
        projected = {name: layer(x) for name, layer in self._projections().items()}
        with _autocast_off(x):
            log_decay = self._log_decay(projected, state)
            if log_decay.dim() == 1:
                log_decay = log_decay.expand(1, x.shape[1], -1)
            log_decay = log_decay.transpose(1, 2)  # (B, H, T), or the same for all rows, (1, H, T)
            parts = {name: part.transpose(1, 2) for name, part in self._by_head(projected, state).items()}
            parts["query"], parts["key"] = self._features(parts["query"], parts["key"])
            if real is not None:
                parts["key"] = parts["key"].masked_fill(~real[:, None, :, None], 0)
                log_decay = log_decay.masked_fill(~real.unsqueeze(1), 0)
            o, state = (self._chunk if enabled() else self._step_by_step)(parts, log_decay, state)
            o = o.transpose(1, 2).flatten(2)
        y = self.out_proj(o.to(projected["value"].dtype))
        return y if real is None else y.masked_fill(~real.unsqueeze(2), 0), state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Read one element of each row: x_t (B, N) and a state to y_t (B, N) and the next."""
        check_features(x_t, "B", self.model_size)
        state = checked_tensor(state, len(x_t), self.num_heads, self.head_size, self._state_width)
        return self._advance({name: layer(x_t) for name, layer in self._projections().items()}, state, None)

    def prepare(self) -> LayerStep:
        """Return a function equal to `step`: one product for all projections of x, and fixed decays computed once."""
        if not may_prepare(self):
            return stepping(self)
        layers = self._projections()
        with torch.no_grad():
            weight = torch.cat([layer.weight for layer in layers.values()])
            bias = torch.cat([layer.bias for layer in layers.values()])
            gated = self.decay_gate is not None
            decay = None if gated else self._log_decay({}, self.initial_state(1)).exp()
        sizes = [layer.out_features for layer in layers.values()]

        def step(x_t: Tensor, state: State) -> tuple[Tensor, Tensor]:
            projected = nn.functional.linear(x_t, weight, bias).split(sizes, 1)
            return self._advance(dict(zip(layers, projected, strict=True)), state, decay)

        return step

    def decays(self, x: Tensor) -> Tensor:
        """a of each head at each element of x, (B, T, N): (B, T, H)."""
        check_features(x, "BT", self.model_size)
        projected = {} if self.decay_gate is None else {"decay_gate": self.decay_gate(x)}
        return self._log_decay(projected, self.initial_state(1)).exp().expand(*x.shape[:2], self.num_heads)

    def extra_repr(self) -> str:
        """Return the sizes and the kind of decay."""
        return f"{self.model_size}, num_heads={self.num_heads}, decay={self.decay!r}"

    def _advance(self, projected: dict[str, Tensor], state: Tensor, decay: Tensor | None) -> tuple[Tensor, Tensor]:
        """Take one step from the projections of x; decay: (H,), where it is known."""
        with _autocast_off(state):
            if decay is None:
                decay = self._log_decay(projected, state).exp()
            parts = self._by_head(projected, state)
            parts["query"], parts["key"] = self._features(parts["query"], parts["key"])
            o, state = self._one(parts, decay, state)
        return self.out_proj(o.flatten(1).to(projected["value"].dtype)), state

    def _log_decay(self, projected: dict[str, Tensor], state: Tensor) -> Tensor:
        """log a of each head: (B, T, H), at one step (B, H); where it does not depend on x, (H,)."""
        if self.decay_gate is not None:
            return nn.functional.logsigmoid(projected["decay_gate"].to(state.dtype)) / GATE_TEMPERATURE
        heads = state.new_zeros(self.num_heads)
        return heads if self.decay == "none" else fixed_log_decay(heads)

    def _by_head(self, projected: dict[str, Tensor], state: Tensor) -> dict[str, Tensor]:
        """Vectors split into heads, (..., H, D), and gates, (..., H), in the memory's type."""
        parts = {name: part.to(state.dtype) for name, part in projected.items()}
        for name in ("query", "key", "value"):
            parts[name] = parts[name].unflatten(-1, (self.num_heads, self.head_size))
        return parts


def fixed_log_decay(heads: Tensor) -> Tensor:
    r"""log(1 - 2^{-5-h}) for h = 0, 1, ... along the last axis, in the shape and type of `heads`.

    >>> fixed_log_decay(torch.zeros(3)).exp()
    tensor([0.9688, 0.9844, 0.9922])
    """
    h = torch.arange(heads.shape[-1], device=heads.device, dtype=heads.dtype)
    return torch.log1p(-torch.exp2(-5 - h)).expand(heads.shape)


def normalised_by_size(o: Tensor) -> Tensor:
    """o divided by its root mean square along the last axis: RMSNorm without a scale, which W_o contains."""
    return o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-6)


def _nearest_divisor(size: int, wanted: int) -> int:
    return min((d for d in range(1, size + 1) if size % d == 0), key=lambda d: abs(d - wanted))


def _autocast_off(x: Tensor) -> AbstractContextManager[object]:
    """Keep the memory's products in its own type; do nothing without autocast, as entering it takes time."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


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
