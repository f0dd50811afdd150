"""Sequences of symbols in compiled loops: the scores of the next symbol of each of a few sequences, again and again.

`Rows` are a model with fixed weights. What they hold of some sequences is changed in place by every element; it is made
from a state, and made a state again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from chainrule.kernels import _compiled_models as models
from chainrule.kernels import _compiled_transformer as transformer
from chainrule.state import State, map_state

Array: TypeAlias = npt.NDArray[Any]
Read: TypeAlias = Callable[[Array, list[State], Array], None]
"""Writes what a model reads, (B, N), for symbols (B,), −1 for none; the list holds what it keeps of those before."""
_ROOM = 128  # elements, at least, until a cache moves to a new buffer
AHEAD = 64  # positions whose vectors and turns are computed together


def array(tensor: torch.Tensor) -> Array:
    """Return a tensor's numbers as a contiguous array, which shares its memory if possible."""
    return np.ascontiguousarray(tensor.detach().numpy())


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to contiguous memory: loops are compiled for it alone."""
    return tensor.clone(memory_format=torch.contiguous_format)


class Rows(ABC):
    """A model of symbols in compiled loops, which step sequences side by side: one has the same bits in any company."""

    vocab_size: int  # V
    dtype: np.dtype[Any]  # of the scores
    steps = True  # whether a state costs little: a copy, at most

    @abstractmethod
    def begin(self, state: State) -> Any:
        """Return what is held of B sequences, apart from their state."""

    @abstractmethod
    def scores(self, symbols: Array, held: Any) -> Array:
        """Return the scores (B, V) of the next symbols in any normalisation, after symbols (B,); −1 stands for none."""

    def add_probs(self, weight: float, symbols: Array, held: Any, p: Array) -> None:
        """Add weight · the probabilities (B, V) of the next symbols to p."""
        models.add_softmax(weight, self.scores(symbols, held), p)

    @abstractmethod
    def state(self, held: Any) -> State:
        """Return the state of what is held, which goes on only by `begin` of that state."""


class Recurrence:
    """A stack of recurrent cells in one direction, which holds h and c, (L, B, M) each.

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

    def begin(self, state: State) -> tuple[Array, ...]:
        """Return the parts of a state."""
        parts = state if isinstance(state, tuple) else (state,)
        return tuple(np.array(part.detach().transpose(0, 1).numpy(), self._rest[2].dtype, order="C") for part in parts)

    def step(self, projected: Array, held: tuple[Array, ...]) -> Array:
        """Read the projected input of the lowest layer, which is overwritten; the top layer's h, (B, M)."""
        scratch = np.empty((len(projected), held[0].shape[2]), projected.dtype)
        models.advance(self._kind, *self._rest, held[0], held[-1], projected, scratch)
        top: Array = held[0][-1]
        return top

    def state(self, held: tuple[Array, ...]) -> State:
        """Return it as the layer has it."""
        parts = tuple(torch.from_numpy(part).transpose(0, 1) for part in held)
        return parts if len(parts) > 1 else parts[0]


@dataclass
class _Cache:
    """Keys and values of a few sequences in a buffer (2, L, B, G, C, d), with room behind them."""

    numbers: Array
    end: int  # slots filled; each sequence ends there
    count: Array  # (B,) elements read; never changed, as states share it


class Blocks:
    """Transformer blocks, which hold their keys and values.

    A state's cache is a stretch of the buffer. The newest state goes on in the same buffer, where no earlier one looks;
    any other is copied.

    Args:
        weights: of the blocks.
        window: W.
        positioned: whether vectors of positions are added, and counted.
        places: returns, for some positions from a given one on, vectors (m, D) that are added to the features, and
            cosines and sines (m, d) of the turns of heads; (m, 0) for none. It raises if the first has none.

    Attributes:
        width: D.
    """

    def __init__(
        self,
        weights: transformer.Weights,
        window: int,
        positioned: bool,
        places: Callable[[int], tuple[Array, Array]],
    ):
        self._weights, self._window, self._positioned, self._places = weights, window, positioned, places
        self._last: tuple[State, _Cache] | None = None
        self._ahead = dict[int, tuple[Array, Array]]()
        self.width = weights.join.shape[1]
        self._widths = self.width, weights.project.shape[1], weights.first.shape[1], weights.second.shape[2]
        self._scratch = [weights.join[:0]]

    def begin(self, state: State) -> _Cache:
        """Return the cache of a state."""
        last, self._last = self._last, None
        if last is not None and last[0] is state:
            return last[1]
        blocks = state["blocks"]
        parts = [torch.stack([block[name] for block in blocks]).detach().numpy() for name in ("keys", "values")]
        (layers, rows, groups, held, size), kind = parts[0].shape, self._weights.join.dtype
        numbers = np.empty((2, layers, rows, groups, held + max(held, _ROOM), size), kind)
        for part, own in zip(parts, numbers, strict=True):
            own[:, :, :, :held] = part
        return _Cache(numbers, held, blocks[0]["count"].numpy())

    def step(self, x: Array, cache: _Cache) -> Array:
        """Read the features (B, D) of an element, which become the output."""
        if cache.end == cache.numbers.shape[4]:
            held = min(self._window - 1, cache.end)
            shape = list(cache.numbers.shape)
            shape[4] = held + max(held, _ROOM)
            numbers = np.empty(shape, x.dtype)
            numbers[..., :held, :] = cache.numbers[..., cache.end - held :, :]
            cache.numbers, cache.end = numbers, held
        if len(x) == 1:
            place = self._place(int(cache.count[0]))
        else:
            places = zip(*map(self._place, cache.count.tolist()), strict=True)
            place = np.concatenate(next(places)), np.concatenate(next(places))
        cache.end, cache.count = cache.end + 1, cache.count + 1
        if len(self._scratch[0]) != len(x):
            self._scratch = [np.empty((len(x), width), x.dtype) for width in self._widths]
        scores = np.empty(cache.end, x.dtype)
        transformer.transform(
            x, *place, cache.count, self._window, cache.end, cache.numbers, self._weights, *self._scratch, scores
        )
        return x

    def _place(self, position: int) -> tuple[Array, Array]:
        """Return the vector and the turns of a position."""
        first, row = position - position % AHEAD, position % AHEAD
        if first not in self._ahead:
            if len(self._ahead) > AHEAD:
                self._ahead.clear()
            self._ahead[first] = self._places(first)
        vectors, turns = self._ahead[first]
        if row >= len(vectors):  # they end
            self._places(position)
        return vectors[row : row + 1], turns[row : row + 1]

    def state(self, cache: _Cache) -> State:
        """Return it as the stack has it."""
        length, count = min(self._window - 1, cache.end), torch.from_numpy(cache.count)
        keys, values = torch.from_numpy(cache.numbers).narrow(4, cache.end - length, length).unbind()
        pairs = zip(keys.unbind(), values.unbind(), strict=True)
        blocks = tuple({"keys": key, "values": value, "count": count} for key, value in pairs)
        state = {"blocks": blocks, "position": count if self._positioned else None}
        self._last = state, cache
        return state


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

    def begin(self, state: State) -> tuple[Any, list[State]]:
        stack, past = self._parts(state)
        return self._stack.begin(stack), [map_state(_copied, past)]

    def scores(self, symbols: Array, held: tuple[Any, list[State]]) -> Array:
        own, past = held
        x = np.empty((len(symbols), self._stack.width), self.dtype)
        self._read(symbols, past, x)
        scores = np.empty((len(symbols), self.vocab_size), self.dtype)
        models.predict(self._weight, self._bias, self._stack.step(x, own), scores)
        return scores

    def state(self, held: tuple[Any, list[State]]) -> State:
        own, past = held
        return self._joined(self._stack.state(own), past[0])


def looked_up(table: torch.Tensor) -> Read:
    """Reads the rows of a table (V, N); the last one where there is no symbol."""
    rows = array(table)

    def read(symbols: Array, past: list[State], x: Array) -> None:
        rows.take(symbols, 0, x, "wrap")  # np.take takes a microsecond more

    return read


def embedded(embedding: torch.Tensor, ngrams: tuple[Sequence[torch.Tensor], int] | None = None) -> Read:
    """Reads x, the embedding of a symbol and of the n-grams that it ends.

    Args:
        embedding: (V + 1, E), the last for a sequence that begins.
        ngrams: tables of the n-grams of order 2, 3, ..., N, each (R, E), and the longest n-gram with a separate row.
            (B, N − 1) symbols before are kept.
    """
    vectors, (tables, exact) = array(embedding), ngrams or ((), 1)
    begins, rows = np.cumsum([0, *map(len, tables)]), array(torch.cat([embedding[:0], *tables]))

    def read(symbols: Array, past: list[State], x: Array) -> None:
        recent = np.empty((len(symbols), 0), np.int64) if past[0] is None else past[0].numpy()
        models.embed(symbols, recent, len(vectors), vectors, rows, begins, exact, x)

    return read


def projected(read: Read, weight: torch.Tensor, bias: torch.Tensor) -> Read:
    """Reads W x + b of an x that is read, W (K, E) and b (K,)."""
    weights, biases = array(weight), array(bias)

    def read_product(symbols: Array, past: list[State], y: Array) -> None:
        x = np.empty((len(symbols), weights.shape[1]), weights.dtype)
        read(symbols, past, x)
        models.predict(weights, biases, x, y)

    return read_product


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
        self._taps = array(torch.stack([part.transpose(1, 2).flatten(1) for part in weight]))
        self._between, self._behind = weight[0].shape[2] - 1, array(residual.transpose(1, 2))
        self._linears = [(array(part), array(offset)) for part, offset in linears]
        self.vocab_size, self.dtype = len(linears[-1][1]), self._inputs.dtype

    def begin(self, state: State) -> tuple[Any, ...]:
        queues = self._queues(state)
        begins = np.cumsum([0, *(queue.shape[1] for queue in queues)])
        bias = self._bias if state["bias"] is None else self._bias + state["bias"][0]
        past = array(torch.cat(list(queues), 1)[0]).copy()
        return [0], past, begins, np.diff(begins) // self._between, array(bias)

    def scores(self, symbols: Array, held: tuple[Any, ...]) -> Array:
        (time,), past, begins, dilations, bias = held
        (channels, kind), (first, second, third) = (past.shape[1], past.dtype), self._linears
        h = self._inputs[symbols[0]].copy()
        read, a = np.empty(self._taps.shape[2], kind), np.empty(2 * channels, kind)
        outputs = np.empty((len(dilations), channels), kind)
        own = self._taps, bias, self._behind, read, a, outputs
        models.gated(time, h, past, begins, dilations, *own)
        hidden, scores = np.empty((2, len(first[1])), kind), np.empty((1, len(third[1])), kind)
        models.rectified_layers(outputs.reshape(-1), *first, *second, *third, hidden, scores[0])
        held[0][0] += 1
        return scores

    def state(self, held: Any) -> State:
        raise NotImplementedError  # never called, as `steps` is False: copying the queues costs more than a step


class NgramRows(Rows):
    """log p of n-gram counts; see `chainrule.layers.KneserNey`.

    Args:
        unigrams, keys, terms, backoffs: the tables.
    """

    def __init__(self, *tables: torch.Tensor):
        self._tables, self.vocab_size = tuple(map(array, tables)), len(tables[0])
        self.dtype = self._tables[0].dtype

    def begin(self, state: State) -> Array:
        contexts: Array = _copied(state).numpy()
        return contexts

    def scores(self, symbols: Array, held: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._probs(symbols, held))

    def add_probs(self, weight: float, symbols: Array, held: Array, p: Array) -> None:
        p += weight * self._probs(symbols, held)

    def _probs(self, symbols: Array, held: Array) -> Array:
        p = np.empty((len(symbols), self.vocab_size), self.dtype)
        models.ngram_probs(symbols, held, *self._tables, p)
        return p

    def state(self, held: Array) -> State:
        return torch.from_numpy(held)


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

    def begin(self, state: State) -> list[Any]:
        return [part.begin(own) for part, own in zip(self._parts, state, strict=True)]

    def scores(self, symbols: Array, held: list[Any]) -> Array:
        p = np.zeros((len(symbols), self.vocab_size), self.dtype)
        for part, own, weight in zip(self._parts, held, self._weights, strict=True):
            part.add_probs(weight, symbols, own, p)
        with np.errstate(divide="ignore"):
            return np.log(p, out=p)

    def state(self, held: list[Any]) -> State:
        return tuple(part.state(own) for part, own in zip(self._parts, held, strict=True))


draw = models.draw
