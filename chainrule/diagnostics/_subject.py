"""Subject of an inspection: a module's recurrent layers, their input and loss, and the replay of their steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule._checks import check_lengths, length_mask
from chainrule.diagnostics import _derivatives as derivatives
from chainrule.diagnostics._derivatives import Passage
from chainrule.layers import GRU, LSTM, RNN, Recurrent
from chainrule.layers._cells import project, symbols_of
from chainrule.layers._recurrent import Backend
from chainrule.models import RecurrentLM
from chainrule.models._model_mean import first_part
from chainrule.modes import check_gradients_work, evaluating
from chainrule.state import State

Loss = Literal["last", "mean"] | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Subject:
    """Stack of recurrent layers on real data, batch first."""

    layers: list[Recurrent]  # single layers, bottom first, in evaluation mode, which share the module's weights
    features: Tensor  # (B, T, N), or (B, T) integers as indices of one-hot vectors; zero in padding
    lengths: Tensor  # (B,) lengths of the rows
    states: list[tuple[Tensor, ...]]  # initial state of each layer, h (B, M), and c for cells that have one
    output: Tensor  # (B, T, M) output of the module itself; zero in padding
    # loss of a model, from (h (.., M), symbols (..)) to (..); `None` for a bare layer
    nats: Callable[[Tensor, Tensor], Tensor] | None = None
    symbols: Tensor | None = None  # (B, T) symbols that the loss predicts; `None` for a bare layer
    # function from symbols to features, if the model embeds single symbols
    embed: Callable[[Tensor], Tensor] | None = None

    @property
    def real(self) -> Tensor:
        """Booleans (B, T), true at real elements."""
        return length_mask(self.lengths, self.features.shape[1])

    def select(self, rows: Tensor) -> "Subject":
        """Select rows."""
        return Subject(
            self.layers,
            self.features[rows],
            self.lengths[rows],
            [tuple(part[rows] for part in state) for state in self.states],
            self.output[rows],
            self.nats,
            None if self.symbols is None else self.symbols[rows],
            self.embed,
        )

    def local_gradient(self, loss: Loss) -> tuple[Tensor, float]:
        """Return g_t = ∂(w_t ℓ_t)/∂h_t at the top layer, (B, T, M), and the loss."""
        check_gradients_work()
        with torch.enable_grad():
            h = self.output.detach().clone().requires_grad_()
            value = self._loss(h, loss)
            if value.dim() or not value.requires_grad:
                got = f"shape {tuple(value.shape)}" if value.dim() else "one that does not depend on them"
                raise ValueError(f"loss: expected a scalar made of the outputs (B, T, M), got {got}")
            (gradient,) = torch.autograd.grad(value, h, materialize_grads=True)
        return gradient.masked_fill(~self.real.unsqueeze(-1), 0), value.item()

    def _loss(self, h: Tensor, loss: Loss) -> Tensor:
        if callable(loss):
            return loss(h)
        if loss == "last":
            rows = torch.arange(len(h), device=h.device)[self.lengths > 0]
            steps = self.lengths[rows] - 1
            return self._each(h[rows, steps], None if self.symbols is None else self.symbols[rows, steps]).sum()
        if loss == "mean":
            terms = self._each(h, self.symbols).masked_fill(~self.real, 0).sum(1)
            return (terms / self.lengths.clamp(min=1)).sum()
        raise ValueError(f"loss: expected 'last', 'mean' or a function of the outputs (B, T, M), got {loss!r}")

    def _each(self, h: Tensor, symbols: Tensor | None) -> Tensor:
        if self.nats is None:
            return h.square().sum(-1)
        assert symbols is not None
        return self.nats(h, symbols)


def subject_of(
    module: nn.Module, x: Tensor, lengths: Tensor | None = None, state: State = None, x_prev: Tensor | None = None
) -> Subject:
    """Prepare the recurrence inside a module on data; for a mean of models, of its first model."""
    if isinstance(module, AutoregressiveModel):
        module, state = first_part(module, state)
    recurrent = module.recurrent if isinstance(module, RecurrentLM) else module
    if not isinstance(recurrent, nn.RNNBase):
        raise ValueError(
            "module: expected a recurrent layer of chainrule.layers or torch.nn, or a RecurrentLM, "
            f"got {type(module).__name__}"
        )
    _check_weights(module)
    with torch.no_grad(), evaluating(module):
        if isinstance(module, RecurrentLM):
            x, lengths = _checked(x, lengths, x.dim() == 2 and not x.is_floating_point(), "integers (B, T)")
            state, recent = (None, None) if state is None else module.parts(state)
            features = module.inputs(x, x_prev, recent)
        else:
            x = _batch_first(recurrent, x)
            fits = x.dim() == 3 if x.is_floating_point() else x.dim() == 2 and isinstance(recurrent, Recurrent)
            features, lengths = x, lengths = _checked(x, lengths, fits, "features (B, T, N)")
            if x.is_floating_point() and x.shape[-1] != recurrent.input_size:
                raise ValueError(f"x: expected {recurrent.input_size} features, got {x.shape[-1]}")
        layers = single_layers(recurrent)
        states = _states(recurrent, state, len(x))
        output = _output(recurrent, features, states, lengths)
    if not isinstance(module, RecurrentLM):
        return Subject(layers, features, lengths, states, output)
    model = module

    def nats(h: Tensor, symbols: Tensor) -> Tensor:
        with evaluating(model):
            return -model.conditional(h).log_prob(symbols)

    def embed(symbols: Tensor) -> Tensor:
        with torch.no_grad(), evaluating(model):
            return model.vectors(symbols)

    return Subject(layers, features, lengths, states, output, nats, x, embed if model.reads_single_vectors else None)


def single_layers(recurrent: nn.RNNBase) -> list[Recurrent]:
    """Split a stack into single layers that share its weights, without dropout."""
    if recurrent.bidirectional:
        raise ValueError("module: expected one direction, got a bidirectional layer: inspect each direction separately")
    if recurrent.proj_size:
        raise ValueError(f"module: expected proj_size=0, got {recurrent.proj_size}: projected states are not supported")
    layers = []
    for index in range(recurrent.num_layers):
        weights = {name[: -len(str(index))]: getattr(recurrent, name) for name in recurrent._all_weights[index]}
        layer = _single(recurrent, weights["weight_ih_l"].shape[1])
        for name, weight in weights.items():
            setattr(layer, f"{name}0", nn.Parameter(weight.detach(), requires_grad=False))
        layers.append(layer.eval())
    return layers


def _single(recurrent: nn.RNNBase, input_size: int) -> Recurrent:
    size, bias = recurrent.hidden_size, recurrent.bias
    # cuDNN warns unless a module's weights are one block of memory, which the weights of a single layer are not.
    backend: Backend = "auto" if cast(Tensor, recurrent.weight_hh_l0).device.type == "cpu" else "bptt"
    if recurrent.mode == "LSTM":
        return LSTM(input_size, size, bias=bias, backend=backend, device="meta")
    if recurrent.mode == "GRU":
        after = getattr(recurrent, "reset_after", True)
        return GRU(input_size, size, bias=bias, reset_after=after, backend=backend, device="meta")
    f = cast(str, recurrent.nonlinearity)
    return RNN(input_size, size, nonlinearity=f, bias=bias, backend=backend, device="meta")


def _output(recurrent: nn.RNNBase, features: Tensor, states: list[tuple[Tensor, ...]], lengths: Tensor) -> Tensor:
    """Compute the output of the module itself, not through the single layers."""
    parts = [torch.stack(part, 1) for part in zip(*states, strict=True)]  # (B, L, M) each
    real = length_mask(lengths, features.shape[1])
    if isinstance(recurrent, Recurrent):
        state = tuple(parts) if recurrent.has_cell else parts[0]
        output, _ = recurrent(features, state, None if real.all() else lengths)
        return output
    parts = [part.transpose(0, 1).contiguous() for part in parts]
    x = features if recurrent.batch_first else features.transpose(0, 1)
    output, _ = recurrent(x, tuple(parts) if len(parts) > 1 else parts[0])
    output = output if recurrent.batch_first else output.transpose(0, 1)
    return output.masked_fill(~real.unsqueeze(-1), 0)


def _states(recurrent: nn.RNNBase, state: State, batch_size: int) -> list[tuple[Tensor, ...]]:
    shape = (batch_size, recurrent.num_layers, recurrent.hidden_size)
    if state is None:
        zeros = cast(Tensor, recurrent.weight_hh_l0).new_zeros(shape)
        parts = [zeros] * (1 + (recurrent.mode == "LSTM"))
    else:
        parts = list(state) if recurrent.mode == "LSTM" else [state]
        if not isinstance(recurrent, Recurrent):  # torch.nn keeps layers first
            parts = [part.transpose(0, 1) for part in parts]
        if any(part.shape != shape for part in parts):
            raise ValueError(f"state: expected {shape}, as the module returns it, got {tuple(parts[0].shape)}")
    return [tuple(part[:, layer] for part in parts) for layer in range(recurrent.num_layers)]


def _checked(x: Tensor, lengths: Tensor | None, fits: bool, wanted: str) -> tuple[Tensor, Tensor]:
    """Return x with zeros in padding, and the lengths."""
    if not fits:
        raise ValueError(f"x: expected {wanted}, got shape {tuple(x.shape)} of {x.dtype}")
    x = x if x.is_floating_point() else symbols_of(x)
    if lengths is None:
        lengths = torch.full((len(x),), x.shape[1], device=x.device)
    check_lengths(lengths, (len(x), x.shape[1]))
    lengths = lengths.to(x.device, torch.long)  # torch reads a uint8 index as a mask
    if not len(x):
        raise ValueError("x: expected at least one row, got none")
    if int(lengths.max()) < 2:
        raise ValueError(f"x: expected at least two steps, got {int(lengths.max())}")
    padding = ~length_mask(lengths, x.shape[1])
    return x.masked_fill(padding.view(*padding.shape, *(1,) * (x.dim() - 2)), 0), lengths


def _batch_first(recurrent: nn.RNNBase, x: Tensor) -> Tensor:
    if x.dim() == 2 and x.is_floating_point():
        return x.unsqueeze(0)  # torch.nn's unbatched (T, N)
    return x if recurrent.batch_first or x.dim() != 3 else x.transpose(0, 1)


def _check_weights(module: nn.Module) -> None:
    for name, weight in module.named_parameters():
        if not weight.isfinite().all():
            raise ValueError(f"module: {name} holds a number that is not finite: the model is damaged or diverged")
        if weight.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"module: expected weights in float32 or float64, got {weight.dtype}: call .float() first")


TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}  # of single steps, so errors do not accumulate
TF32_TOLERANCE = 2e-2  # TF32 keeps ten bits of a product's factors


def replay(subject: Subject) -> tuple[list[Passage], list[Tensor], float]:
    """Recompute each h_t and its gates from the module's h_{t−1} and x_t; return passages, inputs and the error."""
    # Every step starts from the module's own state: rounding does not grow along the row, even in a chaotic recurrence,
    # and all steps of a layer are one matrix product.
    check_gradients_work()
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
            f"module: its outputs differ by up to {error:.2g} from a {type(subject.layers[0]).__name__} with its "
            "weights, so its gradients cannot be replayed"
        )
    return passages, inputs, error


def passage_of(layer: Recurrent, x: Tensor, h_before: Tensor, state: tuple[Tensor, ...]) -> Passage:
    """Compute all steps of a layer from x (T, B, N) or (T, B), h_{t−1} (T, B, M) and the initial state."""
    weight_ih, *weights = layer.all_weights[0]
    projected = project(x.flatten(0, 1), weight_ih, layer.input_bias(weights)).unflatten(0, x.shape[:2])
    match layer:
        case LSTM():
            return derivatives.lstm(projected, weights[0], h_before, state[1])
        case GRU(reset_after=True):
            return derivatives.gru_after(projected, weights[0], layer.bias_hn(weights), h_before)
        case GRU():
            return derivatives.gru_before(projected, weights[0], h_before)
        case RNN():
            return derivatives.rnn(projected, weights[0], h_before, layer.nonlinearity)
    raise ValueError(f"module: expected an RNN, LSTM or GRU, got {type(layer).__name__}")


@torch.no_grad()
def gate_values(module: nn.Module, x: Tensor, lengths: Tensor | None = None) -> list[dict[str, Tensor]]:
    """Compute the gates and states of each recurrent layer at every element that it reads.

    Args:
        module: recurrent layer of `chainrule.layers` or `torch.nn`, or a `RecurrentLM`.
        x: (B, T, N) features of a layer, or (B, T) symbols of a model, which reads each one element later.
        lengths: (B,) lengths of the rows.

    Returns:
        For each layer, bottom first, (B, T, M) by name: "hidden", "cell" if there is one, and the gates: "input",
        "forget", "candidate" and "output" of an LSTM, "reset", "update" and "candidate" of a GRU.

    >>> from chainrule.layers import LSTM
    >>> [layer] = gate_values(LSTM(3, 4), torch.zeros(2, 5, 3))
    >>> sorted(layer), layer["forget"].shape
    (['candidate', 'cell', 'forget', 'hidden', 'input', 'output'], torch.Size([2, 5, 4]))
    """
    passages, _, _ = replay(subject_of(module, x, lengths))
    return [{name: value.transpose(0, 1) for name, value in passage.values.items()} for passage in passages]
