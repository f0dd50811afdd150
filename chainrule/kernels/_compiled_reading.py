"""Long sequences side by side, read in compiled loops with weights that stay as they are: recurrent cells and n-grams.

Rows are shared out among torch's threads. Equations and the order of gates are as in `chainrule.layers`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from numba import njit
from torch import Tensor, nn

from chainrule.kernels._compiled_models import BEFORE, GRU, KINDS, copy, first_place, reset, unit
from chainrule.kernels._compiled_recurrent import add, add_product, panels, threaded
from chainrule.kernels._compiled_transformer import array
from chainrule.kernels._machine_code import compiled, kept
from chainrule.state import State

_LEAST_ROWS = 8  # of a thread: fewer do not pay for reading the weights


def _over_rows(loop: Callable[..., None], count: int, *arguments: Any) -> None:
    """Run a loop over rows, some in each of torch's threads."""
    threads = max(1, min(torch.get_num_threads(), count // _LEAST_ROWS))
    bounds = [count * thread // threads for thread in range(threads + 1)]
    if threads == 1:
        loop(0, count, *arguments)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(loop, *ends, *arguments) for ends in pairwise(bounds[1:])]
        loop(*bounds[:2], *arguments)
        for other in others:
            other.result()


@kept
@threaded
def _read_cells(
    first: int, end: int, kind: int, weight_ih: Any, bias: Any, weight_hh: Any, candidate: Any, bias_hn: Any,
    table: Any, places: Any, x: Any, a: Any, e: Any, h: Any, c: Any, outputs: Any,
) -> None:  # fmt: skip
    """Write h of every step to outputs (B, T, M), in the rows from `first` to `end`.

    W_ih x + b is the sum of rows of a `table` (R, G·M) at `places` (B, T, K) and, where x (B, T, N) is not empty, of
    the product. The state h and c (B, M) changes in place; a (B, G·M) and e (B, M) are scratch. A GRU's weights of n
    are the `candidate`, not in `weight_hh`.
    """
    early = a.shape[1] - h.shape[1] * (kind in (GRU, BEFORE))
    a, e, h, c = a[first:end], e[first:end], h[first:end], c[first:end]
    for t in range(outputs.shape[1]):
        for row in range(len(a)):
            copy(bias, a[row])
            for place in places[first + row, t]:
                add(table[place], a[row])
        if x.shape[2]:
            add_product(x[first:end, t], weight_ih, a)
        add_product(h, weight_hh, a[:, :early])
        if kind == GRU:
            for row in range(len(a)):
                copy(bias_hn, e[row])
            add_product(h, candidate, e)
        elif kind == BEFORE:
            for row in range(len(a)):
                reset(a[row, :early], h[row], e[row])
            add_product(e, candidate, a[:, early:])
        for row in range(len(a)):
            unit(kind, a[row], e[row], h[row], c[row], h[row], c[row])
            copy(h[row], outputs[first + row, t])


class Cells:
    """A stack of recurrent cells in one direction, prepared for reading.

    Args:
        kind: a key of `KINDS`.
        layers: of each, W_ih (G·M, N), b (G·M,), W_hh (G·M, M), and b_hn (M,) of a GRU whose reset comes after the
            product; zeros elsewhere.
        vectors: (R, N) whose sums the lowest layer reads; None for any input.
    """

    def __init__(self, kind: str, layers: Sequence[tuple[Tensor, ...]], vectors: Tensor | None = None):
        self._kind = KINDS[kind]
        gru = self._kind in (GRU, BEFORE)
        self._layers = []
        for weight_ih, bias, weight_hh, bias_hn in layers:
            size = weight_hh.shape[1]
            parts = weight_hh.split([2 * size, size]) if gru else [weight_hh]
            laid_out = [array(panels(part)) for part in (weight_ih, *parts)]
            self._layers.append((laid_out[0], array(bias), laid_out[1], laid_out[-1], array(bias_hn)))
        weight = layers[0][0]
        self._table = array(weight[:0, :1] if vectors is None else vectors @ weight.t())

    def read(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Read a chunk, as `chainrule.layers.Recurrent` does.

        x: (B, T, N) features, or places (B, T, K) of the vectors that are their sum.
        """
        parts = state if isinstance(state, tuple) else (state,)
        states = [part.transpose(0, 1).clone(memory_format=torch.contiguous_format) for part in parts]
        (count, steps), (like, size) = x.shape[:2], (states[0], states[0].shape[2])
        a, e = like.new_empty(count, len(self._layers[0][1])), like.new_empty(count, size)
        places = x if not x.is_floating_point() else x.new_empty(count, steps, 0, dtype=torch.int64)
        x = x if x.is_floating_point() else like.new_empty(count, steps, 0)
        for layer, weights in enumerate(self._layers):
            outputs = like.new_empty(count, steps, size)
            arrays = (x, a, e, states[0][layer], states[-1][layer], outputs)
            _over_rows(_read_cells, count, self._kind, *weights, self._table, array(places), *map(array, arrays))
            x, places = outputs, places[:, :, :0]
        after = tuple(part.transpose(0, 1) for part in states)
        return x, after if isinstance(state, tuple) else after[0]


@kept
@njit(_nrt=False, nogil=True)  # terms are added as torch adds them
def _read_ngrams(
    first: int, end: int, x: Any, contexts: Any, begins: Any, symbols: Any, once: Any, alone: Any, unigrams: Any,
    terms: Any, backoffs: Any, p: Any,
) -> None:  # fmt: skip
    """Write the contexts before each symbol of x (B, T) and after the last to (B, T + 1, n − 1), and p (B, T) of each.

    The first contexts of each row are there. A symbol outside [0, V) was never seen. N-grams that occur `once` are left
    out where this is not empty, and so are contexts that have nothing else where their terms and back-offs are more
    than `alone`.
    """
    vocab_size, orders = len(unigrams), contexts.shape[2]
    for row in range(first, end):
        for t in range(x.shape[1]):
            before, after, symbol = contexts[row, t], contexts[row, t + 1], x[row, t]
            known = 0 <= symbol < vocab_size
            after[0] = symbol if known else -1
            total = unigrams[symbol] if known else unigrams.dtype.type(0)
            for index in range(orders):
                number, place = before[index], -1
                if number >= 0:
                    term, backoff = unigrams.dtype.type(0), backoffs[number]
                    if known:
                        place = _child(begins[number], begins[number + 1], symbols, symbol)
                    if place >= 0:
                        term = terms[place]
                        if len(once) and once[place]:
                            if term + backoff > alone:
                                backoff = unigrams.dtype.type(1)
                            term = unigrams.dtype.type(0)
                    total = term + backoff * total
                if index + 1 < orders:
                    after[index + 1] = place + vocab_size + 1 if place >= 0 else -1
            p[row, t] = total


@compiled
def _child(low: int, high: int, symbols: Any, symbol: int) -> int:
    """Return the place of a symbol among those that follow a context; −1 if it never did."""
    found = first_place(symbols, symbol, low, high)
    return found if found < high and symbols[found] == symbol else -1


class Ngrams:
    """N-gram counts, prepared for reading; see `chainrule.layers.KneserNey`.

    The symbols that follow a context are neighbours in the table: their first place is kept for each context.

    Args:
        unigrams, keys, terms, backoffs: the tables.
        once: which n-grams the scored occurrence is left out of; empty for none.
        alone: the sum of a term and its back-off above which a context has no other symbol.
    """

    def __init__(self, unigrams: Tensor, keys: Tensor, terms: Tensor, backoffs: Tensor, once: Tensor, alone: float):
        vocab_size = len(unigrams)
        following = torch.bincount(keys // vocab_size, minlength=len(backoffs))
        begins = nn.functional.pad(following.cumsum(0), (1, 0)).int()
        self._places = array(begins), array((keys % vocab_size).int()), array(once)
        alone = float(terms.new_tensor(alone))  # rounded, as torch compares
        self._numbers, self._dtype = (alone, *map(array, (unigrams, terms, backoffs))), terms.dtype

    def read(self, x: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contexts before and after each symbol of x (B, T), (B, T + 1, n − 1), and p (B, T) of each."""
        rows, steps = x.shape
        found, p = contexts.new_empty(rows, steps + 1, contexts.shape[1]), torch.empty(rows, steps, dtype=self._dtype)
        found[:, 0] = contexts
        arrays = array(x.long()), found.numpy(), *self._places, *self._numbers, p.numpy()
        _over_rows(_read_ngrams, rows, *arrays)
        return found, p
