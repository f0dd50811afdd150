"""One step of a stack of recurrent cells for a single sequence, and what it reads and predicts, in compiled loops.

Equations and the order of gates are as in `chainrule.layers`. A state is written in place.
"""

from typing import Any

import numpy as np

from chainrule.kernels._compiled_math import sigmoid, tanh
from chainrule.kernels._compiled_products import add_product, copy
from chainrule.kernels._machine_code import compiled_sums, kept

KINDS = {"lstm": 0, "gru": 1, "gru-before": 2, "tanh": 3, "relu": 4, "sigmoid": 5, "identity": 6}


@compiled_sums
def _lstm(a: Any, h: Any, c: Any) -> None:
    """Compute the cell from its pre-activations a (4M,), in the order i, f, g, o."""
    size = len(h)
    i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
    for j in range(size):
        c[j] = sigmoid(f[j]) * c[j] + sigmoid(i[j]) * tanh(g[j])
        h[j] = sigmoid(o[j]) * tanh(c[j])


@compiled_sums
def _gru(a: Any, q: Any, h: Any) -> None:
    """Compute the unit with its reset after the product: the last M of a (3M,) lack W_hn h, which is q (M,)."""
    size = len(h)
    r, z, n = a[:size], a[size : 2 * size], a[2 * size :]
    for j in range(size):
        value = tanh(n[j] + sigmoid(r[j]) * q[j])
        h[j] = value + sigmoid(z[j]) * (h[j] - value)


@compiled_sums
def _gru_before(weight: Any, a: Any, q: Any, h: Any) -> None:
    """Compute the unit with its reset before the product."""
    size = len(h)
    r, z, n = a[:size], a[size : 2 * size], a[2 * size :]
    for j in range(size):
        q[j] = sigmoid(r[j]) * h[j]
    add_product(weight[2 * size :], q, n)
    for j in range(size):
        value = tanh(n[j])
        h[j] = value + sigmoid(z[j]) * (h[j] - value)


@compiled_sums
def _rnn(kind: int, a: Any, h: Any) -> None:
    if kind == 3:
        for j in range(len(h)):
            h[j] = tanh(a[j])
    elif kind == 4:
        for j in range(len(h)):
            h[j] = a.dtype.type(0) if a[j] < 0 else a[j]  # NaN stays
    elif kind == 5:
        for j in range(len(h)):
            h[j] = sigmoid(a[j])
    else:
        copy(a, h)


@kept
@compiled_sums
def advance(kind: int, weight_ih: Any, bias: Any, weight_hh: Any, bias_hn: Any, h: Any, c: Any, a: Any, q: Any) -> None:
    """Take one step of all layers.

    Args:
        kind: of `KINDS`.
        weight_ih: (L − 1, G·M, M), of the layers above the lowest.
        bias: (L − 1, G·M), added to their products.
        weight_hh: (L, G·M, M).
        bias_hn: (L, M), of a GRU whose reset comes after the product.
        h, c: (L, M), the state; c of an LSTM alone.
        a: (G·M,), the projected input of the lowest layer; overwritten.
        q: (M,), scratch.
    """
    size = h.shape[1]
    for layer in range(len(h)):
        if layer:
            copy(bias[layer - 1], a)
            add_product(weight_ih[layer - 1], h[layer - 1], a)
        weight, own = weight_hh[layer], h[layer]
        if kind == 1:
            copy(bias_hn[layer], q)
            add_product(weight[: 2 * size], own, a[: 2 * size])
            add_product(weight[2 * size :], own, q)
            _gru(a, q, own)
        elif kind == 2:
            add_product(weight[: 2 * size], own, a[: 2 * size])
            _gru_before(weight, a, q, own)
        else:
            add_product(weight, own, a)
            if kind == 0:
                _lstm(a, own, c[layer])
            else:
                _rnn(kind, a, own)


@kept
@compiled_sums
def predict(weight: Any, bias: Any, h: Any, scores: Any) -> None:
    """Compute the scores (V,) of all symbols: W h + b."""
    copy(bias, scores)
    add_product(weight, h, scores)


_MULTIPLIER, _MIXER, _POSITIVE = np.int64(1_000_003), np.int64(0x9E37_79B1), np.int64(0x7FFF_FFFF)


@kept
@compiled_sums
def embed(symbol: int, recent: Any, symbols: int, embedding: Any, tables: Any, begins: Any, exact: int, x: Any) -> None:
    """Compute the input of the lowest layer, x (E,): the embedding of a symbol, and of the n-grams that it ends.

    Args:
        symbol: the symbol.
        recent: (N − 1,) the symbols before it, the oldest first; it enters them.
        symbols: how many different ones there are.
        embedding: (symbols, E).
        tables: (R, E), the tables of n-grams one after another, as `chainrule.layers._ngram_embedding` makes them.
        begins: (N,) the first row of each, and R.
        exact: the longest n-gram with a separate row.
        x: written.
    """
    copy(embedding[symbol], x)
    order = len(begins)
    for n in range(2, order + 1):
        first = len(recent) - (n - 1)
        multiplier = np.int64(symbols) if n <= exact else _MULTIPLIER
        code = np.int64(recent[first])
        for index in range(first + 1, len(recent)):
            code = code * multiplier + recent[index]
        code = code * multiplier + symbol
        if n > exact:
            code = ((code ^ (code >> 17)) * _MIXER & _POSITIVE) % (begins[n - 1] - begins[n - 2])
        row = tables[begins[n - 2] + code]
        for j in range(len(x)):
            x[j] += row[j]
    for index in range(len(recent) - 1):
        recent[index] = recent[index + 1]
    if len(recent):
        recent[len(recent) - 1] = symbol
