"""The replay: every layer's steps computed again from the states that the module itself went through."""

import torch
from torch import Tensor

from chainrule.diagnostics import _derivatives as derivatives
from chainrule.diagnostics._derivatives import Passage
from chainrule.diagnostics._subject import Subject
from chainrule.layers import GRU, LSTM, RNN, Recurrent
from chainrule.layers._cells import project

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}  # of one step: nothing accumulates
TF32_TOLERANCE = 2e-2  # a GPU may keep ten bits of a product's factors


def replay(subject: Subject) -> tuple[list[Passage], list[Tensor], float]:
    """Recompute each h_t from the h_{t−1} and x_t that the module used, with the gates that a fused kernel hides.

    As every step starts from the module's own state, rounding does not grow along the row, however chaotic the
    recurrence, and all steps of a layer are one matrix product.

    Returns:
        A passage for each layer, time first; the input of each layer, (T, B, N); and the largest difference between a
        replayed h_t and the module's own.

    Raises:
        ValueError: the module does not compute what its weights say.
    """
    passages, inputs, error = [], [], 0.0
    features = subject.features
    for index, (layer, state) in enumerate(zip(subject.layers, subject.states, strict=True)):
        if index == len(subject.layers) - 1:
            h = subject.output
        else:
            parts = tuple(part.unsqueeze(1) for part in state)
            h, _ = layer(features, parts if layer.has_cell else parts[0], subject.lengths)
        h_before = torch.cat([state[0].unsqueeze(1), h[:, :-1]], 1)
        passage = passage_of(layer, features.transpose(0, 1), h_before.transpose(0, 1), state)
        difference = (passage.h.transpose(0, 1) - h).masked_fill(~subject.real.unsqueeze(-1), 0)
        error = max(error, float(difference.abs().amax() / max(1.0, float(h.abs().amax()))))
        passages.append(passage)
        inputs.append(features.transpose(0, 1))
        features = h
    tf32 = h.is_cuda and h.dtype == torch.float32 and torch.backends.cudnn.allow_tf32
    if error > (TF32_TOLERANCE if tf32 else TOLERANCE[h.dtype]):
        raise ValueError(
            f"module: its outputs differ from those of its weights by up to {error:.2g}: it does more than "
            f"{type(subject.layers[0]).__name__} does, so its gradients cannot be replayed"
        )
    return passages, inputs, error


def passage_of(layer: Recurrent, x: Tensor, h_before: Tensor, state: tuple[Tensor, ...]) -> Passage:
    """All steps of one layer, each from its own h_{t−1}.

    x: (T, B, N), or integers (T, B); h_before: (T, B, M); state: h_0 (B, M), and c_0 where there is one.
    """
    weight_ih, *weights = layer.all_weights[0]
    projected = project(x.flatten(0, 1), weight_ih, layer.input_bias(weights)).unflatten(0, x.shape[:2])
    match layer:
        case LSTM():
            return derivatives.lstm(projected, weights[0], h_before, state[1])
        case GRU(reset_after=True):
            return derivatives.gru_reset_after(projected, weights[0], layer.bias_hn(weights), h_before)
        case GRU():
            return derivatives.gru_reset_before(projected, weights[0], h_before)
        case RNN():
            return derivatives.rnn(projected, weights[0], h_before, layer.nonlinearity)
    raise ValueError(f"module: expected an RNN, LSTM or GRU, got {type(layer).__name__}")
