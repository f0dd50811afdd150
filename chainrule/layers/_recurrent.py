"""The base of the recurrent layers: torch.nn's parameters, lengths, single steps, and the choice of backend."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from chainrule.kernels import enabled
from chainrule.kernels._recurrent import training_loops
from chainrule.kernels._transforms import may_prepare, needs_plain_form, values_are_known
from chainrule.kernels._vendor_recurrent import ONE_HOT_LIMIT, vendor_output
from chainrule.layers._cells import StackedCells, project, symbols_of
from chainrule.layers._packing import Packing, real_steps
from chainrule.layers._sequence_layer import LOOK_UP_LIMIT, LayerStep, SequenceLayer, stepping
from chainrule.option_error import OptionError
from chainrule.state import State

Backend = Literal["auto", "vendor", "bptt"]


class Recurrent(nn.RNNBase, SequenceLayer):
    """A stack of recurrent layers over (B, T, N); `RNN`, `LSTM` and `GRU` define one step.

    The parameters are made by `torch.nn.RNNBase`: `weight_ih_l0` (G·M, N), `weight_hh_l0` (G·M, M), `bias_ih_l0` and
    `bias_hh_l0` (G·M), then `l1`... and `_reverse`, so that a `state_dict` loads from torch.nn and into it.

    The state is one tensor (B, L·D, M) of layers and directions, for an LSTM the pair (h, c) of them: as in torch.nn
    with `transpose(0, 1)`. torch.nn's own layout (L·D, B, M) raises ValueError, but where L·D = B, as nothing in the
    tensor then tells the two apart: turn a state that comes from torch.nn.

    `torch.func` and derivatives of any order work: `chainrule.kernels._bptt`.
    """

    kernel: str  # torch.nn's name of the recurrence
    has_cell = False  # whether the state is (h, c)
    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        backend: Backend = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        if not batch_first:
            raise ValueError("batch_first: expected True, got False: these layers read (B, T, N); transpose the input")
        if backend not in ("auto", "vendor", "bptt"):
            raise OptionError("backend", f"expected 'auto', 'vendor' or 'bptt', got {backend!r}")
        with warnings.catch_warnings():  # torch.nn warns of dropout on a single layer, which has no place for it
            warnings.simplefilter("ignore", UserWarning)
            super().__init__(
                self.kernel, input_size, hidden_size, num_layers, bias, True, dropout, bidirectional,
                device=device, dtype=dtype,
            )  # fmt: skip
        self.backend = backend

    def vendor_computes_this(self) -> bool:
        """True if the vendor's kernel computes the same function."""
        return True

    def _early_bias(self, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
        """Return the part of the biases that is added before the recurrence, (G·M,)."""
        return bias_ih + bias_hh

    @abstractmethod
    def _run(
        self, projected: Tensor, weights: Sequence[Tensor], state: list[Tensor], sizes: list[int]
    ) -> tuple[Tensor, ...]:
        """Run one layer in one direction over all steps: h of every step (R, M), then each part of the last state."""

    @abstractmethod
    def cell(self, projected: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Take one step of one layer: each part of the new state, h first."""

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a chunk; see `SequenceLayer.forward`.

        Args:
            x: (B, T, N) features, or (B, T) integers in [0, N), each the one-hot vector of a symbol.
            state: the state before the chunk; `None` is zeros.
            lengths: (B,) real elements of each row, 0 allowed; the backward direction starts at a row's end.

        Returns:
            The top layer's h of every step, (B, T, D·M), and the last state.
        """
        x = self._checked_input(x, time=True)
        parts = self._parts(state, x)
        unknown = lengths if isinstance(lengths, Tensor) and not values_are_known(lengths) else None
        packing = Packing.of(x, lengths if unknown is None else None)
        if not packing.sizes:
            width = self.hidden_size * (2 if self.bidirectional else 1)
            return parts[0].new_zeros(*x.shape[:2], width), self._state(parts)
        if unknown is not None:
            output, parts = self._run_masked(x, parts, unknown)
        else:
            if self._use_vendor(x, parts, packing):
                output, parts = vendor_output(self, x, parts, packing)
            else:
                output, parts = self._run_bptt(x, parts, packing)
        return output, self._state(parts)

    def initial_state(self, batch_size: int) -> State:
        """Zeros."""
        weight = self.weight_hh_l0
        shape = (batch_size, self.num_layers * (2 if self.bidirectional else 1), self.hidden_size)
        return self._state([weight.new_zeros(shape) for _ in range(1 + self.has_cell)])

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one element of each row, (B, N) features or (B,) integers in [0, N)."""
        self._check_one_direction("step")
        x_t = self._checked_input(x_t, time=False)
        cells = StackedCells(self)
        return cells.advance(cells.project(x_t), self._state(self._parts(state, x_t)))

    def prepare(self) -> LayerStep:
        """Return a function equal to `step` in evaluation while the weights do not change.

        Integers are one-hot vectors: their projections W_ih x + b are looked up.
        """
        self._check_one_direction("prepare")
        if not may_prepare(self):
            return stepping(self)
        with torch.no_grad():
            cells = StackedCells(self, training=False)
            table = cells.project(torch.arange(self.input_size, device=self.weight_ih_l0.device))

        def step(x_t: Tensor, state: State) -> tuple[Tensor, State]:
            projected = cells.project(x_t) if x_t.is_floating_point() else table.index_select(0, x_t.long())
            return cells.advance(projected, state)

        return step

    def prepare_for(self, vectors: Tensor) -> LayerStep:
        """Return a prepared step that looks up W_ih x + b of each of the vectors (V, N), by integers (B,)."""
        self._check_one_direction("prepare_for")
        if not may_prepare(self) or len(vectors) * len(self.weight_ih_l0) > LOOK_UP_LIMIT:
            return super().prepare_for(vectors)
        with torch.no_grad():
            cells = StackedCells(self, training=False)
            table = cells.project(vectors)
        return lambda symbols, state: cells.advance(table.index_select(0, symbols), state)

    def _run_bptt(self, x: Tensor, parts: list[Tensor], packing: Packing) -> tuple[Tensor, list[Tensor]]:
        flat = packing.pack(x)
        parts = [packing.enter(part) for part in parts]
        last = []
        directions = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            if layer and self.dropout:
                flat = nn.functional.dropout(flat, self.dropout, self.training)
            outputs = []
            for index in range(layer * directions, (layer + 1) * directions):
                backward = index % directions == 1
                weight_ih, *weights = self.all_weights[index]
                projected = project(packing.reverse(flat) if backward else flat, weight_ih, self.input_bias(weights))
                h, *final = self._run(projected, weights, [part[:, index] for part in parts], packing.sizes)
                outputs.append(packing.reverse(h) if backward else h)
                last.append(final)
            flat = torch.cat(outputs, 1) if self.bidirectional else outputs[0]
        return packing.unpack(flat), [packing.leave(torch.stack(part, 1)) for part in zip(*last, strict=True)]

    def _run_masked(self, x: Tensor, parts: list[Tensor], lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run the cells step by step over all rows, for lengths whose values are not known."""
        real = real_steps(x, lengths)
        assert real is not None
        directions, last = 2 if self.bidirectional else 1, []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = nn.functional.dropout(x, self.dropout, self.training)
            outputs = []
            for index in range(layer * directions, (layer + 1) * directions):
                weight_ih, *weights = self.all_weights[index]
                projected = project(x.flatten(0, 1), weight_ih, self.input_bias(weights)).unflatten(0, real.shape)
                state, steps = tuple(part[:, index] for part in parts), []
                order = slice(None, None, -1 if index % directions else 1)
                for p_t, here in list(zip(projected.unbind(1), real.unsqueeze(2).unbind(1), strict=True))[order]:
                    new = self.cell(p_t, weights, state)
                    state = tuple(torch.where(here, after, before) for after, before in zip(new, state, strict=True))
                    steps.append(state[0] * here)
                outputs.append(torch.stack(steps[order], 1))
                last.append(state)
            x = torch.cat(outputs, 2)
        return x, [torch.stack(part, 1) for part in zip(*last, strict=True)]

    def _use_vendor(self, x: Tensor, parts: list[Tensor], packing: Packing) -> bool:
        if self.backend == "bptt":
            return False
        if not self.vendor_computes_this():
            if self.backend == "vendor":
                raise OptionError("backend", f"no vendor kernel computes {self}; use backend='auto'")
            return False
        if self.backend == "vendor" or x.device.type != "cpu":
            return self.backend == "vendor" or (enabled() and not needs_plain_form())
        # Measured on a CPU (benchmarks/speed_recurrent_training.py): the one fused kernel there is the LSTM's in
        # float32 over full rows, and compiled loops are faster in training. In training on symbols, looking them up
        # gains more than fusing; without gradients the kernel wins even though it must be given the one-hot vectors,
        # as long as they fit.
        fused = (
            enabled()
            and self.mode == "LSTM"
            and packing.rows is None
            and packing.time > 1
            and all(part.dtype == torch.float32 for part in (self.weight_hh_l0, *parts))
            and not torch.is_autocast_enabled("cpu")
            and not needs_plain_form()
            and training_loops(self.weight_hh_l0, packing.sizes) is None
        )
        if x.is_floating_point():
            return fused
        return fused and not torch.is_grad_enabled() and x.numel() * self.input_size <= ONE_HOT_LIMIT

    def input_bias(self, weights: Sequence[Tensor]) -> Tensor | None:
        """Return the part of one layer's biases that is added to W_ih x before the recurrence, (G·M,).

        weights: W_hh and the biases, the layer's `all_weights` after W_ih.
        """
        return self._early_bias(weights[1], weights[2]) if self.bias else None

    def _check_one_direction(self, method: str) -> None:
        if self.bidirectional:
            raise ValueError(f"{method}: a bidirectional layer reads the future; it has no single step")

    def _checked_input(self, x: Tensor, time: bool) -> Tensor:
        wanted = ["B", "T"] if time else ["B"]
        if isinstance(x, Tensor) and x.is_floating_point():
            wanted.append(str(self.input_size))
            if x.dim() == len(wanted) and x.shape[-1] == self.input_size:
                return x
        elif len(wanted) == symbols_of(x).dim():
            return symbols_of(x)
        raise ValueError(
            f"x: expected features ({', '.join(['B', 'T'] if time else ['B'])}, {self.input_size}) "
            f"or integers ({', '.join(['B', 'T'] if time else ['B'])}), got shape {tuple(x.shape)} of {x.dtype}"
        )

    def _parts(self, state: State, x: Tensor) -> list[Tensor]:
        if state is None:
            state = self.initial_state(x.shape[0])
        parts = list(state) if self.has_cell else [state]
        shape = (x.shape[0], self.num_layers * (2 if self.bidirectional else 1), self.hidden_size)
        for part in parts:
            if not isinstance(part, Tensor) or part.shape != shape:
                got = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                form = "a pair (h, c) of tensors" if self.has_cell else "a tensor"
                turned = got == (shape[1], shape[0], shape[2])
                remedy = ": that is torch.nn's layout, bring it here with transpose(0, 1)" if turned else ""
                raise ValueError(f"state: expected {form} of shape {shape} (batch first), got {got}{remedy}")
        return parts

    def _state(self, parts: list[Tensor]) -> State:
        return tuple(parts) if self.has_cell else parts[0]
