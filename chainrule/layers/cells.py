"""One time step of each recurrence, as its equations read."""

import torch
from torch import Tensor

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "identity": lambda a: a}


def rnn_cell(projected: Tensor, h: Tensor, weight_hh: Tensor, nonlinearity: str) -> Tensor:
    r""":math:`h_t = f(a_t)` with a_t = projected + W_hh h; projected (B, M) holds W_ih x_t and both biases."""
    return ACTIVATIONS[nonlinearity](torch.addmm(projected, h, weight_hh.t()))


def lstm_cell(projected: Tensor, h: Tensor, c: Tensor, weight_hh: Tensor) -> tuple[Tensor, Tensor]:
    """h_t and c_t; projected (B, 4M) holds W_ih x_t and both biases, gates in the order i, f, g, o."""
    i, f, g, o = torch.addmm(projected, h, weight_hh.t()).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell_reset_after(projected: Tensor, h: Tensor, weight_hh: Tensor, bias_hn: Tensor) -> Tensor:
    """h_t; projected (B, 3M), order r, z, n, holds W_ih x_t, b_ih, and b_hh of r and z."""
    size = h.shape[1]
    product = torch.mm(h, weight_hh.t())
    r, z = torch.sigmoid(projected[:, : 2 * size] + product[:, : 2 * size]).chunk(2, 1)
    n = torch.tanh(projected[:, 2 * size :] + r * (product[:, 2 * size :] + bias_hn))
    return (1 - z) * n + z * h


def gru_cell_reset_before(projected: Tensor, h: Tensor, weight_hh: Tensor) -> Tensor:
    """h_t; projected (B, 3M), order r, z, n, holds W_ih x_t and both biases."""
    size = h.shape[1]
    r, z = torch.sigmoid(torch.addmm(projected[:, : 2 * size], h, weight_hh[: 2 * size].t())).chunk(2, 1)
    n = torch.tanh(torch.addmm(projected[:, 2 * size :], r * h, weight_hh[2 * size :].t()))
    return (1 - z) * n + z * h
