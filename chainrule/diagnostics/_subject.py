"""The subject of an inspection: the recurrent layers inside a module, their input, and the loss above them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, length_mask
from chainrule._modes import evaluating
from chainrule.layers import GRU, LSTM, RNN, Recurrent
from chainrule.layers._recurrent import Backend
from chainrule.models import RecurrentLM
from chainrule.models._model_mean import first_part
from chainrule.state import State

Loss = Literal["last", "mean"] | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Subject:
    """A stack of recurrent layers on real data, batch first.

    Args:
        layers: one single layer each, bottom first, in evaluation, sharing the module's weights.
        features: (B, T, N), or (B, T) integers, each the index of a one-hot vector; zero past each row's end.
        lengths: (B,).
        states: the initial state of each layer, h (B, M), and c where there is one.
        output: (B, T, M), the states of the top layer that the module itself returned; zero past each row's end.
        nats: the model's loss, from (h (.., M), symbols (..)) to (..); `None` for a bare layer.
        symbols: (B, T), which the loss predicts; `None` for a bare layer.
        embed: the features of a symbol, where a model has an embedding of single symbols.
    """

    layers: list[Recurrent]
    features: Tensor
    lengths: Tensor
    states: list[tuple[Tensor, ...]]
    output: Tensor
    nats: Callable[[Tensor, Tensor], Tensor] | None = None
    symbols: Tensor | None = None
    embed: Callable[[Tensor], Tensor] | None = None

    @property
    def real(self) -> Tensor:
        """(B, T), true at real elements."""
        return length_mask(self.lengths, self.features.shape[1])

    def select(self, rows: Tensor) -> "Subject":
        """The same layers on some of the rows."""
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
        """g_t = ∂(w_t ℓ_t)/∂h_t at the top layer, (B, T, M), and the loss."""
        if torch.is_inference_mode_enabled():
            raise ValueError("gradients: torch.inference_mode records none: call this outside of it")
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
    """The recurrence inside a module, on data; of a mean of models, that of the first.

    Raises:
        ValueError: the module has no recurrence that can be inspected, x does not fit it or is shorter than two steps,
            or a weight is not finite.
    """
    if isinstance(module, AutoregressiveModel):
        module, state = first_part(module, state)
    recurrent = module.recurrent if isinstance(module, RecurrentLM) else module
    if not isinstance(recurrent, nn.RNNBase):
        raise ValueError(
            "module: expected a recurrent layer of chainrule.layers or torch.nn, or a RecurrentLM, "
            f"got {type(module).__name__}, which has no recurrence that is followed here"
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
            return model.embedded(symbols)

    return Subject(layers, features, lengths, states, output, nats, x, embed if model.reads_single_vectors else None)


def single_layers(recurrent: nn.RNNBase) -> list[Recurrent]:
    """Each layer of a stack as a layer of its own that shares its weights, without dropout.

    Raises:
        ValueError: a direction from the right, or a projection of h, which the diagnostics do not know.
    """
    if recurrent.bidirectional:
        raise ValueError("module: expected one direction, got a bidirectional layer: inspect each direction on its own")
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
    # cuDNN wants the weights of a module in one block of memory, which those of a part of it are not.
    backend: Backend = "auto" if cast(Tensor, recurrent.weight_hh_l0).device.type == "cpu" else "bptt"
    if recurrent.mode == "LSTM":
        return LSTM(input_size, size, bias=bias, backend=backend, device="meta")
    if recurrent.mode == "GRU":
        after = getattr(recurrent, "reset_after", True)
        return GRU(input_size, size, bias=bias, reset_after=after, backend=backend, device="meta")
    f = cast(str, recurrent.nonlinearity)
    return RNN(input_size, size, nonlinearity=f, bias=bias, backend=backend, device="meta")


def _output(recurrent: nn.RNNBase, features: Tensor, states: list[tuple[Tensor, ...]], lengths: Tensor) -> Tensor:
    """The output of the module itself: nothing here goes through the single layers."""
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
            raise ValueError(f"state: expected {shape}, as the module itself returns it, got {tuple(parts[0].shape)}")
    return [tuple(part[:, layer] for part in parts) for layer in range(recurrent.num_layers)]


def _checked(x: Tensor, lengths: Tensor | None, fits: bool, wanted: str) -> tuple[Tensor, Tensor]:
    """x with zeros past each row's end, and the lengths."""
    if not fits:
        raise ValueError(f"x: expected {wanted}, got shape {tuple(x.shape)} of {x.dtype}")
    if lengths is None:
        lengths = torch.full((len(x),), x.shape[1], device=x.device)
    if lengths.shape != (len(x),) or lengths.is_floating_point():
        raise ValueError(f"lengths: expected {len(x)} integers, got {tuple(lengths.shape)} of {lengths.dtype}")
    lengths = lengths.to(x.device)
    if not len(x) or int(lengths.min()) < 0 or int(lengths.max()) > x.shape[1]:
        raise ValueError(f"lengths: expected values in [0, {x.shape[1]}], got {lengths.tolist()}")
    if int(lengths.max()) < 2:
        raise ValueError(f"x: expected at least two steps, as nothing flows through one; got {int(lengths.max())}")
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
