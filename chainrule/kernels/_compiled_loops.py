"""Sequences of symbols in compiled loops: the scores of the next symbol of one sequence, again and again.

A `Scores` reads the symbol before, and returns the scores (V,) of the next one, in any normalisation. It changes
its private state and the scores in place: nothing is allocated for an element.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from chainrule.kernels import _compiled_models as models
from chainrule.kernels import _compiled_transformer as transformer

Array: TypeAlias = npt.NDArray[Any]
Scores: TypeAlias = Callable[[int], Array]
"""Function of a symbol; −1 stands for no symbol before the next."""
Read: TypeAlias = Callable[[int, Array], None]
"""Writes what a model reads for a symbol, which is as above."""


def array(tensor: torch.Tensor) -> Array:
    """Return a tensor's numbers as a contiguous array, which shares its memory if possible."""
    return np.ascontiguousarray(tensor.detach().numpy())


class Recurrence:
    """A stack of recurrent cells in one direction.

    Args:
        kind: a key of `KINDS`.
        weight_hh: of each layer, (G·M, M).
        weight_ih: of each layer above the lowest, (G·M, M).
        bias: of the same, (G·M,).
        bias_hn: of each layer of a GRU whose reset comes after the product, (M,); zeros elsewhere.
        state: the parts (1, L, M) of the state, h first.

    Attributes:
        projected: (G·M,), where the projected input of the lowest layer is to be written.
    """

    def __init__(
        self,
        kind: str,
        weight_hh: Sequence[torch.Tensor],
        weight_ih: Sequence[torch.Tensor],
        bias: Sequence[torch.Tensor],
        bias_hn: Sequence[torch.Tensor],
        state: Sequence[torch.Tensor],
    ):
        def stacked(parts: Sequence[torch.Tensor], *shape: int) -> Array:
            return array(torch.stack(list(parts))) if parts else np.empty((0, *shape), dtype)

        self._kind, first = models.KINDS[kind], array(weight_hh[0])
        (gates, size), dtype = first.shape, first.dtype
        weights = first[None] if len(weight_hh) == 1 else stacked(weight_hh)
        above = stacked(weight_ih, gates, size), stacked(bias, gates)
        self._h, c = (state[part][0].detach().numpy().copy() for part in (0, -1))
        self.projected = np.empty(gates, dtype)
        self._rest = (*above, weights, stacked(bias_hn), self._h, c, self.projected, np.empty(size, dtype))

    def step(self) -> Array:
        """Read what is `projected`; the top layer's h, (M,)."""
        models.advance(self._kind, *self._rest)
        top: Array = self._h[-1]
        return top


def recurrent_scores(read: Read, cells: Recurrence, weight: torch.Tensor, bias: torch.Tensor) -> Scores:
    """Return the scores W h + b of a stack of cells.

    Args:
        read: writes the projected input of the lowest layer for a symbol.
        cells: the stack.
        weight, bias: W (V, M) and b (V,).
    """
    weights, biases = array(weight), array(bias)
    scores = np.empty_like(biases)

    def step(symbol: int) -> Array:
        read(symbol, cells.projected)
        models.predict(weights, biases, cells.step(), scores)
        return scores

    return step


def looked_up(table: torch.Tensor) -> Read:
    """Reads the rows of a table (V, N); the last one where there is no symbol."""
    rows = array(table)

    def read(symbol: int, projected: Array) -> None:
        projected[:] = rows[symbol]

    return read


def embedded(embedding: torch.Tensor, ngrams: tuple[Sequence[torch.Tensor], int, torch.Tensor] | None = None) -> Read:
    """Reads x, the embedding of a symbol and of the n-grams that it ends.

    Args:
        embedding: (V + 1, E), the last for a sequence that begins.
        ngrams: tables of the n-grams of order 2, 3, ..., N, each (R, E); the longest n-gram with a separate row;
            and (N − 1,) the symbols before the first.
    """
    vectors = array(embedding)
    tables, exact, recent = ngrams or ((), 1, torch.empty(0, dtype=torch.int64, device="cpu"))
    begins = np.cumsum([0, *(len(table) for table in tables)])
    rows, past = array(torch.cat([embedding[:0], *tables])), array(recent).copy()
    start = len(vectors) - 1

    def read(symbol: int, x: Array) -> None:
        models.embed(start if symbol < 0 else symbol, past, len(vectors), vectors, rows, begins, exact, x)

    return read


def projected(read: Read, weight: torch.Tensor, bias: torch.Tensor) -> Read:
    """Reads W x + b of an x that is read, W (K, E) and b (K,)."""
    weights, biases = array(weight), array(bias)
    x = np.empty(weights.shape[1], weights.dtype)

    def read_product(symbol: int, y: Array) -> None:
        read(symbol, x)
        models.predict(weights, biases, x, y)

    return read_product


def dilated_scores(
    inputs: torch.Tensor,
    queues: Sequence[torch.Tensor],
    weight: Sequence[torch.Tensor],
    bias: torch.Tensor,
    residual: torch.Tensor,
    linears: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> Scores:
    """Return the scores of a WaveNet.

    Args:
        inputs: (V + 1, N) of the first layer, for each symbol before; the last for a sequence that begins.
        queues: of each layer, (n, N), the oldest input first.
        weight: of each layer, (2N, N, k).
        bias: (L, 2N).
        residual: (L − 1, N, N), as `DilatedStack` has them.
        linears: weights and biases of the three layers after the stack.
    """
    rows = array(inputs)
    taps = array(torch.stack([part.transpose(1, 2).flatten(1) for part in weight]))
    past = array(torch.cat(list(queues))).copy()
    begins = np.cumsum([0, *map(len, queues)])
    dilations = np.diff(begins) // (weight[0].shape[2] - 1)
    own = taps, array(bias), array(residual.transpose(1, 2))
    (first, first_bias), *others = [(array(part), array(offset)) for part, offset in linears]
    channels, kind = rows.shape[1], rows.dtype
    h, scores = np.empty(channels, kind), np.empty(len(others[-1][1]), kind)
    read, a, outputs = (
        np.empty(taps.shape[2], kind),
        np.empty(2 * channels, kind),
        np.empty((len(queues), channels), kind),
    )
    hidden = np.empty((2, len(first_bias)), kind)
    rest = (first, first_bias, *others[0], *others[1], hidden, scores)
    time = 0

    def step(symbol: int) -> Array:
        nonlocal time
        h[:] = rows[symbol]
        models.gated(time, h, past, begins, dilations, *own, read, a, outputs)
        models.rectified_layers(outputs.reshape(-1), *rest)
        time += 1
        return scores

    return step


def transformer_scores(
    read: Read,
    blocks: transformer.Weights,
    cached: Sequence[Array],
    window: int,
    count: int,
    places: Callable[[int], tuple[Array, Array]],
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> Scores:
    """Return the scores W h + b of Transformer blocks.

    Args:
        read: writes the features (D,) of a symbol.
        blocks: their weights.
        cached: keys and values (L, G, n, d) of the last n elements.
        window: W.
        count: elements that have been read.
        places: returns, for m positions from a given one on, vectors (m, D) that are added to the features, and cosines
            and sines (m, d) of the turns of heads; (m, 0) for none.
        weight, bias: W (V, D) and b (V,).
    """
    weights, biases = array(weight), array(bias)
    (layers, groups, held, size), kind = cached[0].shape, weights.dtype
    cache = np.empty((2, layers, groups, window, size), kind)
    cache[:, :, :, np.arange(count - held, count) % window] = cached  # what holds nothing goes where nobody reads yet
    heads, hidden, units = blocks.project.shape[1], blocks.first.shape[1], blocks.second.shape[2]
    scratch = [np.empty(width, kind) for width in (weights.shape[1], heads, hidden, units, window)]
    x, scores = np.empty(weights.shape[1], kind), np.empty_like(biases)
    first, vectors, turns = count, x[:0], x[:0]

    def step(symbol: int) -> Array:
        nonlocal count, first, vectors, turns
        if count - first == len(turns):
            (vectors, turns), first = places(count), count
        read(symbol, x)
        place, slot = (vectors[count - first], turns[count - first]), (count % window, min(count + 1, window))
        transformer.transform(x, *place, *slot, cache, blocks, *scratch)
        models.predict(weights, biases, x, scores)
        count += 1
        return scores

    return step


def ngram_scores(
    contexts: torch.Tensor, unigrams: torch.Tensor, keys: torch.Tensor, terms: torch.Tensor, backoffs: torch.Tensor
) -> Scores:
    """log p of n-gram counts; see `chainrule.layers.KneserNey`.

    Args:
        contexts: (n − 1,) before the first symbol.
        unigrams, keys, terms, backoffs: the tables.
    """
    own, tables = array(contexts).copy(), tuple(map(array, (unigrams, keys, terms, backoffs)))
    p = np.empty_like(tables[0])

    def step(symbol: int) -> Array:
        if symbol >= 0:
            models.read_ngrams(symbol, own, tables[1], len(p))
        models.ngram_probs(own, *tables, p)
        with np.errstate(divide="ignore"):
            return np.log(p, out=p)

    return step


def mean_scores(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """log of the mean of distributions as probabilities.

    Args:
        parts: the scores of each.
        weights: of each; they add up to 1.
    """
    p: Array | None = None

    def step(symbol: int) -> Array:
        nonlocal p
        rows = [part(symbol) for part in parts]
        if p is None:
            p = np.empty(len(rows[0]), np.result_type(*rows))
        p[:] = 0
        for row, weight in zip(rows, weights, strict=True):
            models.add_softmax(weight, row, p)
        with np.errstate(divide="ignore"):
            np.log(p, out=p)
        return p

    return step


draw = models.draw
