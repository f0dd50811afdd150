"""Every recurrence there is, small and in float64, and their steps as autograd sees them."""

import torch
from torch import nn

from chainrule.layers import GRU, LSTM, RNN

B, T, N, M = 4, 7, 3, 5
LENGTHS = {"full": None, "unequal": torch.tensor([7, 3, 1, 5])}


def _rnn(nonlinearity):
    return lambda size=M, layers=2, **kw: RNN(N, size, layers, nonlinearity=nonlinearity, **kw)


KINDS = {name: _rnn(name) for name in ("tanh", "relu", "sigmoid", "identity")} | {
    "lstm": lambda size=M, layers=2, **kw: LSTM(N, size, layers, **kw),
    "gru-after": lambda size=M, layers=2, **kw: GRU(N, size, layers, **kw),
    "gru-before": lambda size=M, layers=2, **kw: GRU(N, size, layers, reset_after=False, **kw),
}
TORCH = {
    "torch-tanh": lambda **kw: nn.RNN(N, M, 2, **kw),
    "torch-relu": lambda **kw: nn.RNN(N, M, 2, nonlinearity="relu", **kw),
    "torch-lstm": lambda **kw: nn.LSTM(N, M, 2, **kw),
    "torch-gru": lambda **kw: nn.GRU(N, M, 2, **kw),
}


def taped(layer, x, lengths=None):
    """A single layer on autograd's tape, one step at a time: h and c of every step, lists of (B, M)."""
    weight_ih, *weights = layer.all_weights[0]
    state = [torch.zeros(len(x), layer.hidden_size) for _ in range(1 + layer.has_cell)]
    hs, cs = [], []
    for t in range(x.shape[1]):
        projected = x[:, t] @ weight_ih.t() + layer.input_bias(weights)
        h, *c = layer.cell(projected, weights, state)
        if lengths is not None:
            h = torch.where((lengths > t).unsqueeze(1), h, 0.0)
        state = [h, *c]
        hs.append(h)
        cs += c
    return hs, cs


def jacobian(layer, x_t, state):
    """∂s_t/∂s_{t−1} of one row by autograd, (S, S); s is h, for an LSTM [h, c]. state: (S,)."""

    def step(s):
        parts = s.chunk(2) if layer.has_cell else (s,)
        parts = tuple(part.view(1, 1, -1) for part in parts)
        _, new = layer.step(x_t.unsqueeze(0), parts if layer.has_cell else parts[0])
        return torch.cat([part.flatten() for part in (new if layer.has_cell else (new,))])

    return torch.autograd.functional.jacobian(step, state)


def jacobians(layer, x):
    """(B, T, S, S) of a single layer from zero states."""
    rows = []
    for row in x:
        state = torch.zeros(layer.hidden_size * (1 + layer.has_cell))
        matrices = []
        for x_t in row:
            matrices.append(jacobian(layer, x_t, state))
            parts = tuple(part.view(1, 1, -1) for part in (state.chunk(2) if layer.has_cell else (state,)))
            _, new = layer.step(x_t.unsqueeze(0), parts if layer.has_cell else parts[0])
            state = torch.cat([part.flatten() for part in (new if layer.has_cell else (new,))]).detach()
        rows.append(torch.stack(matrices))
    return torch.stack(rows)
