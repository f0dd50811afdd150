"""Models of symbols prepared for many steps with the same weights: look-ups made once, and compiled loops."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import pad

from chainrule._executor import Executor, Step, Unroll
from chainrule.heads._computed_categorical import LookedUpCategorical
from chainrule.kernels._compiled import compiled_loops
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._cells import symbols_of
from chainrule.layers._kneser_ney import ALONE
from chainrule.layers._positions import LearnedPositions, rotations
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._recurrent_stack import GRU, RNN
from chainrule.layers._sequence_layer import LOOK_UP_LIMIT, LayerStep
from chainrule.layers._transformer_stack import TransformerStack
from chainrule.state import State, count_rows

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Recurrence, Rows
    from chainrule.kernels._compiled_transformer import Blocks

# Models make their executors: these import none of them.
ModelMean: TypeAlias = Any
NgramLM: TypeAlias = Any
RecurrentLM: TypeAlias = Any
SymbolModel: TypeAlias = Any
TransformerLM: TypeAlias = Any
WaveNet: TypeAlias = Any


class SymbolExecutor(Executor):
    """A model of symbols whose layer and head are prepared, and whose input vectors are looked up if they are few."""

    model: SymbolModel

    def __init__(self, model: SymbolModel):
        super().__init__(model)
        self.may_replace = not model.training and may_prepare(model)
        if not self.may_replace:
            return
        with torch.no_grad():
            self._start, vectors = model.start(1), None
            count = model.vocab_size + 1
            if model.reads_single_vectors and count * model.vectors(self._start).shape[-1] <= LOOK_UP_LIMIT:
                vectors = model.vectors(torch.arange(count, device=self._start.device))
            self._looks_up = vectors is not None
            self._advance, self._predict = self.parts(vectors)
        self.step = self._prepared_step

    @property
    def saved(self) -> float:
        return saved_by(self.model, self.model.layer)

    def parts(self, vectors: Tensor | None) -> tuple[LayerStep, Callable[[Tensor, Tensor], Distribution]]:
        """Prepare the layer, to read integers where vectors (V + 1, N) are given, and the head."""
        model = self.model
        advance = model.layer.prepare() if vectors is None else model.layer.prepare_for(vectors)
        return advance, model.conditional

    def _prepared_step(self, x_prev: Tensor | None, state: State) -> tuple[Any, State]:
        layer, recent = self.model.parts(state)
        symbols = self._start.expand(count_rows(layer)) if x_prev is None else symbols_of(x_prev)
        features = symbols
        if not self._looks_up:
            rows, recent = self.model.embedded(symbols.unsqueeze(1), recent)
            features = rows.squeeze(1)
        h, layer = self._advance(features, layer)
        return self._predict(h, symbols), self.model.joined(layer, recent)


_LARGEST_CACHE = 1 << 28  # numbers, that are copied in each step


def saved_by(model: nn.Module, layer: nn.Module) -> float:
    """Estimate the seconds that compiled loops save per element: a call per weight tensor, and faster reading."""
    return 5e-5 * len(list(model.parameters())) + 1e-10 * sum(weight.numel() for weight in layer.parameters())


class RecurrentExecutor(SymbolExecutor):
    """A recurrent language model, whose long sequences compiled loops draw."""

    model: RecurrentLM

    def fixed(self, state: State) -> tuple[Step, State] | None:
        return (self.step, state) if self.may_replace else None

    @cached_property
    def compiled_unroll(self) -> Unroll | None:
        model, layer = self.model, self.model.recurrent
        if compiled_loops(layer.weight_hh_l0) is None or model.embedding is None or not self.may_replace:
            return None
        from chainrule.kernels._compiled_reading import Cells
        from chainrule.kernels._compiled_recurrent import panel_width

        if layer.hidden_size < panel_width(layer.weight_hh_l0.dtype):
            return None
        with torch.no_grad():
            vectors = model.all_vectors()
            if len(vectors) * len(layer.weight_ih_l0) > LOOK_UP_LIMIT:
                return partial(model.unroll_by, model.embedded, Cells(_kind(layer), _layers(layer)).read)
            return partial(model.unroll_by, model.places, Cells(_kind(layer), _layers(layer), vectors).read)

    def compiled_rows(self) -> "Rows | None":
        model = self.model
        loops = compiled_loops(model.recurrent.weight_hh_l0)
        if loops is None or model.adaptive is not None or not self.may_replace:
            return None
        cells, weight, bias = _compiled_cells(loops, model.recurrent)
        if model.embedding is None:
            read = loops.looked_up(weight.t() + bias)
        elif model.ngrams is None and (model.vocab_size + 1) * len(weight) <= LOOK_UP_LIMIT:
            read = loops.looked_up(model.vectors(torch.arange(model.vocab_size + 1, device="cpu")) @ weight.t() + bias)
        else:
            tables = None if model.ngrams is None else model.ngrams.tables_apart()
            read = loops.projected(loops.embedded(model.embedding.weight, tables), weight, bias)
        return loops.StackRows(read, cells, model.output_weight(), model.bias_ho, model.parts, model.joined)


def _compiled_cells(loops: ModuleType, layer: Recurrent) -> "tuple[Recurrence, Tensor, Tensor]":
    """Return the steps of a layer in compiled loops, and W_ih and b of the lowest one."""
    weight_ih, biases, weight_hh, gated = zip(*_layers(layer), strict=True)
    return loops.Recurrence(_kind(layer), weight_hh, weight_ih[1:], biases[1:], gated), weight_ih[0], biases[0]


def _kind(layer: Recurrent) -> str:
    """Return the name of a cell in compiled loops."""
    if isinstance(layer, RNN):
        return layer.nonlinearity
    kind: str = layer.mode.lower()
    return "gru-before" if isinstance(layer, GRU) and not layer.reset_after else kind


def _layers(layer: Recurrent) -> "list[tuple[Tensor, Tensor, Tensor, Tensor]]":
    """Return W_ih, b and W_hh of each layer, and b_hn of a GRU whose reset comes after the product, else zeros."""
    zeros = layer.weight_hh_l0.new_zeros(len(layer.weight_hh_l0))
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for weight_ih, *rest in layer.all_weights:
        bias = layer.input_bias(rest)
        gated = layer.bias_hn(rest) if isinstance(layer, GRU) else zeros[: layer.hidden_size]
        found.append((weight_ih, zeros if bias is None else bias, rest[0], gated))
    return found


class WaveNetExecutor(SymbolExecutor):
    """A WaveNet, whose long sequences compiled loops draw."""

    model: WaveNet

    @property
    def saved(self) -> float:
        return super().saved / 8  # plain steps are NumPy's

    def parts(self, vectors: Tensor | None) -> tuple[LayerStep, Callable[[Tensor, Tensor], Distribution]]:
        head = self.model.head
        return self.model.stack.prepare_for(vectors, head.linears), head.distribution

    def compiled_rows(self) -> "Rows | None":
        model, stack = self.model, self.model.stack
        loops = compiled_loops(stack.residual)
        if loops is None or model.components is not None or not self.may_replace:
            return None
        layers = stack.convolutions
        return loops.DilatedRows(
            model.embedding.weight,
            stack.queues,
            [layer.weight for layer in layers],
            torch.stack([cast(Tensor, layer.bias) for layer in layers]),
            stack.residual,
            [(linear.weight, linear.bias) for linear in model.head.linears],
        )


class TransformerExecutor(SymbolExecutor):
    """A Transformer, whose long sequences compiled loops draw."""

    model: TransformerLM

    def fixed(self, state: State) -> tuple[Step, State] | None:
        """With caches as long as the window, whose empty slots no query reads."""
        layer, recent = self.model.parts(state)
        mixers = [block.mixer for block in self.model.stack.layers]
        cached = [mixer for mixer in mixers if isinstance(mixer, CausalAttention)]
        numbers = sum(2 * mixer.num_kv_heads * mixer.head_size * mixer.window for mixer in cached)
        if not self.may_replace or count_rows(layer) * numbers > _LARGEST_CACHE:
            return None

        def filled(mixer: nn.Module, cache: State) -> State:
            if not isinstance(mixer, CausalAttention):
                return cache
            empty = (0, 0, mixer.window - 1 - cache["keys"].shape[2], 0)
            return cache | {name: pad(cache[name], empty) for name in ("keys", "values")}

        blocks = tuple(map(filled, mixers, layer["blocks"]))
        return self.model.step, self.model.joined(layer | {"blocks": blocks}, recent)

    def compiled_rows(self) -> "Rows | None":
        model = self.model
        loops = compiled_loops(model.embedding.weight)
        if loops is None or not self.may_replace or (blocks := compiled_blocks(model.stack)) is None:
            return None
        vectors = model.vectors(torch.arange(model.vocab_size + 1, device="cpu"))
        read = loops.looked_up(vectors)
        if model.ngrams is not None:
            read = loops.embedded(vectors, model.ngrams.tables_apart())
        return loops.StackRows(read, blocks, model.output_weight(), model.bias_ho, model.parts, model.joined)


def compiled_blocks(stack: TransformerStack) -> "Blocks | None":
    """Return the steps of a stack in compiled loops, which can be imported; `None` for other mixers."""
    from chainrule.kernels._compiled_transformer import ACTIVATIONS, AHEAD, Blocks, Weights, array

    mixers, networks = [block.mixer for block in stack.layers], [block.feed_forward for block in stack.layers]
    if not all(isinstance(mixer, CausalAttention) for mixer in mixers):
        return None
    mixer, norm_first = mixers[0], stack.layers[0].norm_first
    like, size = mixer.in_proj_weight, mixer.head_size
    norms: list[Any] = [norm for block in stack.layers for norm in (block.norm1, block.norm2)]
    projections, biases = zip(*(part.scaled_projection() for part in mixers), strict=True)
    slopes = like.new_zeros(mixer.num_heads) if (own := mixer.slopes()) is None else own.to(like)

    def stacked(parts: Iterable[Tensor | None], width: int) -> Any:
        return array(torch.stack([like.new_zeros(width) if part is None else part for part in parts]))

    def linears(layers: Sequence[nn.Linear]) -> tuple[Any, Any]:
        biases = stacked((layer.bias for layer in layers), layers[0].out_features)
        return stacked((layer.weight for layer in layers), 0), biases

    def shifted(norm: Any) -> Tensor:
        return torch.stack([norm.weight, getattr(norm, "bias", torch.zeros_like(norm.weight))])

    weights = Weights(
        stacked(map(shifted, [*norms, stack.norm] if norm_first else norms), 0),
        isinstance(norms[0], nn.LayerNorm), norm_first, norms[0].eps,
        stacked(projections, 0), stacked(biases, len(like)),
        *linears([part.out_proj for part in mixers]),
        array(slopes), ACTIVATIONS[networks[0].activation],
        *linears([part.linear1 for part in networks]),
        *linears([part.linear2 for part in networks]),
    )  # fmt: skip

    def places(start: int) -> tuple[Any, Any]:
        positions = torch.arange(start, start + AHEAD, device="cpu")
        if isinstance(stack.positions, LearnedPositions):  # at the end they raise
            positions = positions[: max(len(stack.positions.weight) - start, 1)]
        vectors = turns = like.new_empty(len(positions), 0)
        if stack.positions is not None:
            vectors = stack.positions.vectors(positions).to(like)
        if mixer.position == "rotary":
            turns = torch.view_as_real(rotations(positions, size, like)).flatten(1)
        return array(vectors), array(turns)

    return Blocks(weights, mixer.window, stack.positions is not None, places)


class NgramExecutor(Executor):
    """Counts, looked up by compiled loops."""

    model: NgramLM
    saved = 5e-4

    def fixed(self, state: State) -> tuple[Step, State] | None:
        return self.step, state

    @cached_property
    def compiled_unroll(self) -> Unroll | None:
        ngrams = self.model.ngrams
        if compiled_loops(ngrams.terms) is None or not may_prepare(self.model):
            return None
        from chainrule.kernels._compiled_reading import Ngrams

        once = ngrams.once if ngrams.leaves_one_out else ngrams.once[:0]
        tables = Ngrams(ngrams.unigrams, ngrams.keys, ngrams.terms, ngrams.backoffs, once, 1 - ALONE)

        def unroll(x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Any, State]:
            contexts, p = tables.read(x, state if x_prev is None else ngrams.step(x_prev, state))
            return LookedUpCategorical(contexts[:, :-1], ngrams, (x, contexts[:, 1:]), p.log()), contexts[:, -2]

        return unroll

    def compiled_rows(self) -> "Rows | None":
        ngrams = self.model.ngrams
        loops = compiled_loops(ngrams.terms)
        return None if loops is None else loops.NgramRows(ngrams.unigrams, ngrams.keys, ngrams.terms, ngrams.backoffs)


class MeanExecutor(Executor):
    """The parts of a mean, each prepared."""

    model: ModelMean

    def __init__(self, model: ModelMean):
        super().__init__(model, self._together)
        self._parts = [part.prepare() for part in model.parts]

    def _together(self, x_prev: Tensor | None, state: State) -> tuple[Any, State]:
        return self.model.together(part.step(x_prev, own) for part, own in zip(self._parts, state, strict=True))

    @cached_property
    def compiled_unroll(self) -> Unroll | None:
        if not any(part.compiled_unroll for part in self._parts):
            return None
        unrolls = [part.compiled_unroll or part.unroll for part in self._parts]

        def together(x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Any, State]:
            return self.model.together(each(x, own, x_prev) for each, own in zip(unrolls, state, strict=True))

        return together

    def fixed(self, state: State) -> tuple[Step, State] | None:
        parts = [part.fixed(own) for part, own in zip(self._parts, state, strict=True)]
        if None in parts or not may_prepare(self.model):
            return None
        steps, states = zip(*cast("list[tuple[Step, State]]", parts), strict=True)

        def together(x_prev: Tensor | None, state: State) -> tuple[Any, State]:
            return self.model.together(step(x_prev, own) for step, own in zip(steps, state, strict=True))

        return together, states

    @property
    def saved(self) -> float:
        return sum(part.saved for part in self._parts)

    def compiled_rows(self) -> "Rows | None":
        weights = self.model.log_weights
        loops = compiled_loops(torch.empty(0, device="cpu") if weights is None else weights)
        if loops is None or not may_prepare(self.model):
            return None
        rows = [part.compiled_rows() for part in self._parts]
        if None in rows:
            return None
        return loops.MeanRows(rows, [1 / len(rows)] * len(rows) if weights is None else weights.exp().tolist())
