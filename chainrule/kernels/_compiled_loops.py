"""Sequences of symbols in compiled loops: the scores of the next symbol of each of a few sequences, again and again.

`Rows` are a model with fixed weights. They begin with the state of some `Sequences`, which each element changes in
place and which give a state again. What an element needs is allocated when they begin: a new array for each element
would cost as much as a small product.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from chainrule.kernels import _compiled_models as models
from chainrule.kernels._compiled_transformer import Array, Blocks, Stepping, array
from chainrule.state import State, count_rows

Read: TypeAlias = Callable[[State, Array], tuple[Callable[[Array], None], Callable[[], State]]]
"""Begins with what a model keeps of the symbols before. Returns a function that writes what the model reads for symbols
(B,), −1 for none, to the array (B, N), and one that returns what is then kept."""


class Sequences(NamedTuple):
    """A few sequences side by side, changed in place by each element; one has the same bits in any company."""

    scores: Callable[[Array], Array]
    """Function of symbols (B,), −1 for none: the scores (B, V) of the next ones, in any normalisation. The next call
    overwrites them."""
    add_probs: Callable[[float, Array, Array], None]
    """Add a weight · the probabilities of the next symbols after symbols (B,) to an array (B, V)."""
    state: Callable[[], State]
    """Return their state; they go on only as those that begin with it."""


def _scored(scores: Callable[[Array], Array], state: Callable[[], State]) -> Sequences:
    def add_probs(weight: float, symbols: Array, p: Array) -> None:
        models.add_softmax(weight, scores(symbols), p)

    return Sequences(scores, add_probs, state)


class Rows(ABC):
    """A model of symbols in compiled loops."""

    vocab_size: int  # V
    dtype: np.dtype[Any]  # of the scores
    steps = True  # whether it steps several sequences, and a state costs little: a copy, at most

    @abstractmethod
    def begin(self, state: State) -> Sequences:
        """Return the sequences of a state, which stays as it is."""


class Recurrence:
    """A stack of recurrent cells in one direction.

    Args:
        kind: a key of `KINDS`.
        weight_hh: of each layer, (G·M, M).
        weight_ih: of each layer above the lowest, (G·M, M).
        bias: of the same, (G·M,).
        bias_hn: of each layer of a GRU whose reset comes after the product, (M,); zeros elsewhere.

    Attributes:
        width: G·M, of the projected input of the lowest layer.
    """

    def __init__(
        self,
        kind: str,
        weight_hh: Sequence[torch.Tensor],
        weight_ih: Sequence[torch.Tensor],
        bias: Sequence[torch.Tensor],
        bias_hn: Sequence[torch.Tensor],
    ):
        def stacked(parts: Sequence[torch.Tensor], *shape: int) -> Array:
            return array(torch.stack(list(parts))) if parts else np.empty((0, *shape), dtype)

        self._kind, first = models.KINDS[kind], array(weight_hh[0])
        (self.width, size), dtype = first.shape, first.dtype
        weights = first[None] if len(weight_hh) == 1 else stacked(weight_hh)
        self._rest = stacked(weight_ih, self.width, size), stacked(bias, self.width), weights, stacked(bias_hn)

    def begin(self, state: State) -> Stepping:
        parts = state if isinstance(state, tuple) else (state,)
        dtype = self._rest[2].dtype
        held = [np.array(part.detach().transpose(0, 1).numpy(), dtype, order="C") for part in parts]  # (L, B, M) each
        _, count, size = held[0].shape
        x, top = np.empty((count, self.width), dtype), held[0][-1]
        arguments = (self._kind, *self._rest, held[0], held[-1], x, np.empty((count, size), dtype))

        def step() -> Array:
            models.advance(*arguments)
            return top

        def state_now() -> State:
            parts = tuple(torch.from_numpy(part).transpose(0, 1) for part in held)
            return parts if len(parts) > 1 else parts[0]

        return x, step, state_now


class StackRows(Rows):
    """Scores W h + b of recurrent cells or Transformer blocks.

    Args:
        read: writes the input of the stack.
        stack: the cells or blocks.
        weight, bias: W (V, M) and b (V,).
        parts: splits a state into the stack's, and what `read` keeps of a sequence.
        joined: inverts it.
    """

    def __init__(
        self,
        read: Read,
        stack: Recurrence | Blocks,
        weight: torch.Tensor,
        bias: torch.Tensor,
        parts: Callable[[State], tuple[State, State]],
        joined: Callable[[State, State], State],
    ):
        self._read, self._stack, self._weight, self._bias = read, stack, array(weight), array(bias)
        self._parts, self._joined, self.vocab_size, self.dtype = parts, joined, len(bias), self._bias.dtype

    def begin(self, state: State) -> Sequences:
        stack, past = self._parts(state)
        x, step, stack_state = self._stack.begin(stack)
        read, past_state = self._read(past, x)
        weight, bias, scores = self._weight, self._bias, np.empty((len(x), self.vocab_size), self.dtype)

        def scored(symbols: Array) -> Array:
            read(symbols)
            models.predict(weight, bias, step(), scores)
            return scores

        return _scored(scored, lambda: self._joined(stack_state(), past_state()))


def looked_up(table: torch.Tensor) -> Read:
    """Reads the rows of a table (V, N); the last one where there is no symbol."""
    rows = array(table)

    def begin(past: State, x: Array) -> tuple[Callable[[Array], None], Callable[[], State]]:
        def read(symbols: Array) -> None:
            rows.take(symbols, 0, x, "wrap")  # np.take takes a microsecond more

        return read, lambda: past

    return begin


def embedded(embedding: torch.Tensor, ngrams: tuple[Sequence[torch.Tensor], int] | None = None) -> Read:
    """Reads x, the embedding of a symbol and of the n-grams that it ends.

    Args:
        embedding: (V + 1, E), the last for a sequence that begins.
        ngrams: tables of the n-grams of order 2, 3, ..., N, each (R, E), and the longest n-gram with a separate row.
            (B, N − 1) symbols before are kept.
    """
    vectors, (tables, exact) = array(embedding), ngrams or ((), 1)
    begins, rows = np.cumsum([0, *map(len, tables)]), array(torch.cat([embedding[:0], *tables]))

    def begin(past: State, x: Array) -> tuple[Callable[[Array], None], Callable[[], State]]:
        recent = np.empty((len(x), 0), np.int64) if past is None else np.array(past.numpy(), order="C")

        def read(symbols: Array) -> None:
            models.embed(symbols, recent, len(vectors), vectors, rows, begins, exact, x)

        return read, lambda: None if past is None else torch.from_numpy(recent)

    return begin


def projected(read: Read, weight: torch.Tensor, bias: torch.Tensor) -> Read:
    """Reads W x + b of an x that is read, W (K, E) and b (K,)."""
    weights, biases = array(weight), array(bias)

    def begin(past: State, y: Array) -> tuple[Callable[[Array], None], Callable[[], State]]:
        x = np.empty((len(y), weights.shape[1]), weights.dtype)
        read_x, past_now = read(past, x)

        def read_product(symbols: Array) -> None:
            read_x(symbols)
            models.predict(weights, biases, x, y)

        return read_product, past_now

    return begin


def weights_of(*tensors: torch.Tensor) -> list[Array]:
    """Return weight matrices as arrays; as the bits of float16 if no weight loses precision by that.

    So weights that were rounded to float16 are half the bytes to read, and the products are those in float32.
    Widening needs an instruction that all processors with AVX2 have.
    """
    kinds = {tensor.dtype for tensor in tensors}
    if kinds == {torch.float32} and torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        halves = [tensor.detach().half() for tensor in tensors]
        if all(torch.equal(half.float(), tensor) for half, tensor in zip(halves, tensors, strict=True)):
            return [array(half.view(torch.uint16)) for half in halves]
    return [array(tensor) for tensor in tensors]


class DilatedRows(Rows):
    """A WaveNet, for one sequence at a time.

    Args:
        inputs: (V + 1, N) of the first layer, for each symbol before; the last for a sequence that begins.
        queues: returns the queue of each layer in a state, (1, n, N), the oldest input first.
        weight: of each layer, (2N, N, k).
        bias: (L, 2N).
        residual: (L − 1, N, N), as `DilatedStack` has them.
        linears: weights and biases of the three layers after the stack.
    """

    steps = False

    def __init__(
        self,
        inputs: torch.Tensor,
        queues: Callable[[State], Sequence[torch.Tensor]],
        weight: Sequence[torch.Tensor],
        bias: torch.Tensor,
        residual: torch.Tensor,
        linears: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ):
        self._inputs, self._queues, self._bias = array(inputs), queues, bias.detach()
        taps = torch.stack([part.transpose(1, 2).flatten(1) for part in weight])
        matrices = weights_of(taps, residual.transpose(1, 2), *(part for part, _ in linears))
        self._taps, self._behind, *rest = matrices
        self._between = weight[0].shape[2] - 1
        self._linears = [(part, array(offset)) for part, (_, offset) in zip(rest, linears, strict=True)]
        self.vocab_size, self.dtype = len(linears[-1][1]), self._inputs.dtype

    def begin(self, state: State) -> Sequences:
        queues = self._queues(state)
        begins = np.cumsum([0, *(queue.shape[1] for queue in queues)])
        bias = self._bias if state["bias"] is None else self._bias + state["bias"][0]
        past = array(torch.cat(list(queues), 1)[0]).copy()
        (channels, kind), (first, second, third) = (past.shape[1], past.dtype), self._linears
        h, read, a = (np.empty(width, kind) for width in (channels, self._taps.shape[2], 2 * channels))
        outputs, hidden = np.empty((len(queues), channels), kind), np.empty((2, len(first[1])), kind)
        layers = begins, np.diff(begins) // self._between, self._taps, array(bias), self._behind, read, a, outputs
        scores = np.empty((1, self.vocab_size), kind)
        linears = outputs.reshape(-1), *first, *second, *third, hidden, scores[0]
        time = 0

        def scored(symbols: Array) -> Array:
            nonlocal time
            h[:] = self._inputs[symbols[0]]
            models.gated(time, h, past, *layers)
            models.rectified_layers(*linears)
            time += 1
            return scores

        def no_state() -> State:
            raise NotImplementedError  # `steps` is False: copying the queues costs more than a step

        return _scored(scored, no_state)


def _logarithms(add_probs: Callable[[float, Array, Array], None], p: Array) -> Callable[[Array], Array]:
    """Return the scores log p, written to p (B, V)."""
    logarithms = torch.from_numpy(p)  # torch is silent about log 0: telling NumPy so takes longer than the logarithms

    def scores(symbols: Array) -> Array:
        p.fill(0)
        add_probs(1.0, symbols, p)
        logarithms.log_()
        return p

    return scores


class NgramRows(Rows):
    """log p of n-gram counts; see `chainrule.layers.KneserNey`.

    Args:
        unigrams, keys, terms, backoffs: the tables.
    """

    def __init__(self, *tables: torch.Tensor):
        self._tables, self.vocab_size = tuple(map(array, tables)), len(tables[0])
        self.dtype = self._tables[0].dtype

    def begin(self, state: State) -> Sequences:
        contexts, tables = np.array(state.numpy(), order="C"), self._tables

        def add_probs(weight: float, symbols: Array, p: Array) -> None:
            models.add_ngram_probs(weight, symbols, contexts, *tables, p)

        p = np.empty((len(contexts), self.vocab_size), self.dtype)
        return Sequences(_logarithms(add_probs, p), add_probs, lambda: torch.from_numpy(contexts))


class MeanRows(Rows):
    """log of the mean of distributions as probabilities.

    Args:
        parts: the models of each.
        weights: of each; they add up to 1.
    """

    def __init__(self, parts: Sequence[Rows], weights: Sequence[float]):
        self._parts, self._weights, self.vocab_size = parts, weights, parts[0].vocab_size
        self.dtype = np.result_type(*(part.dtype for part in parts))
        self.steps = all(part.steps for part in parts)

    def begin(self, state: State) -> Sequences:
        parts = [part.begin(own) for part, own in zip(self._parts, state, strict=True)]
        adding = [(part.add_probs, weight) for part, weight in zip(parts, self._weights, strict=True)]

        def add_probs(weight: float, symbols: Array, p: Array) -> None:
            for add, share in adding:
                add(weight * share, symbols, p)

        p = np.empty((count_rows(state), self.vocab_size), self.dtype)
        return Sequences(_logarithms(add_probs, p), add_probs, lambda: tuple(part.state() for part in parts))


draw = models.draw
