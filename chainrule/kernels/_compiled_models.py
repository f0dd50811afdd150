"""One step of the models that compiled loops draw from: recurrent cells and n-gram counts, WaveNet for one sequence.

Equations and the order of gates are as in `chainrule.layers`. A state is written in place.
"""

import math
from typing import Any

import numpy as np

from chainrule.kernels._compiled_math import exp, sigmoid, tanh, widened
from chainrule.kernels._machine_code import compiled, compiled_sums, inlined_sums, kept


@inlined_sums
def _add_four(weight: Any, row: int, count: int, x: Any, y: Any) -> None:
    """y += W x in four rows of W, `count` apart."""
    zero, a, b = y.dtype.type(0), weight[row], weight[row + count]
    c, d = weight[row + 2 * count], weight[row + 3 * count]
    sum_a, sum_b, sum_c, sum_d = zero, zero, zero, zero
    for column in range(len(x)):
        sum_a += widened(a[column]) * x[column]
        sum_b += widened(b[column]) * x[column]
        sum_c += widened(c[column]) * x[column]
        sum_d += widened(d[column]) * x[column]
    y[row] += sum_a
    y[row + count] += sum_b
    y[row + 2 * count] += sum_c
    y[row + 3 * count] += sum_d


@inlined_sums
def _add_one(weight: Any, row: int, x: Any, y: Any) -> None:
    """y += W x in one row of W."""
    a, total = weight[row], y.dtype.type(0)
    for column in range(len(x)):
        total += widened(a[column]) * x[column]
    y[row] += total


@compiled_sums
def add_product(weight: Any, x: Any, y: Any) -> None:
    """y += W x: weight (M, N), x (N,), y (M,). Four rows at once, one of each quarter of W.

    W may hold the bits of float16, which are half the bytes: see `_compiled_loops.weights_of`.
    """
    count = len(y) // 4  # rows far apart: beyond the cache, memory is read ahead in four places
    for row in range(count):
        _add_four(weight, row, count, x, y)
    for row in range(4 * count, len(y)):
        _add_one(weight, row, x, y)


@compiled_sums
def add_products(weight: Any, x: Any, y: Any) -> None:
    """y += x Wᵀ: weight (M, N), x (B, N), y (B, M). W is read once, and rows are summed as in `add_product`."""
    if len(x) == 1:
        add_product(weight, x[0], y[0])
        return
    count = y.shape[1] // 4
    for row in range(count):
        for b in range(len(x)):
            _add_four(weight, row, count, x[b], y[b])
    for row in range(4 * count, y.shape[1]):
        for b in range(len(x)):
            _add_one(weight, row, x[b], y[b])


@compiled_sums
def copy(x: Any, y: Any) -> None:
    """y = x, (N,) both."""
    for index in range(len(y)):
        y[index] = x[index]


KINDS = {"lstm": 0, "gru": 1, "gru-before": 2, "tanh": 3, "relu": 4, "sigmoid": 5, "identity": 6}
LSTM, GRU, BEFORE, TANH, RELU, SIGMOID, _ = KINDS.values()


@compiled_sums
def rectify(x: Any) -> None:
    for j in range(len(x)):
        x[j] = x.dtype.type(0) if x[j] < 0 else x[j]  # NaN stays


@compiled_sums
def activate(kind: int, a: Any) -> None:
    """a = f(a)."""
    if kind == TANH:
        for j in range(len(a)):
            a[j] = tanh(a[j])
    elif kind == RELU:
        rectify(a)
    elif kind == SIGMOID:
        for j in range(len(a)):
            a[j] = sigmoid(a[j])


@compiled_sums
def reset(r: Any, h: Any, product: Any) -> None:
    """r = σ(r), and the product r ⊙ h with the first M of r."""
    activate(SIGMOID, r)
    for j in range(len(h)):
        product[j] = r[j] * h[j]


@compiled_sums
def unit(kind: int, a: Any, e: Any, h_prev: Any, c_prev: Any, h: Any, c: Any) -> None:
    """A cell's new state from its pre-activations a (G·M,), which become activations; h may be h_prev, and c c_prev.

    e (M,) becomes tanh c of an LSTM; it is W_hn h + b_hn of a GRU, which a lacks if the reset comes after the product.
    """
    size = len(h)
    if kind == LSTM:
        i, f, g, o = a[:size], a[size : 2 * size], a[2 * size : 3 * size], a[3 * size :]
        activate(SIGMOID, a[: 2 * size])
        activate(TANH, g)
        activate(SIGMOID, o)
        for j in range(size):
            c[j] = f[j] * c_prev[j] + i[j] * g[j]
        for j in range(size):
            e[j] = tanh(c[j])
        for j in range(size):
            h[j] = o[j] * e[j]
    elif kind in (GRU, BEFORE):
        r, z, n = a[:size], a[size : 2 * size], a[2 * size :]
        if kind == GRU:
            activate(SIGMOID, a[: 2 * size])
            for j in range(size):
                n[j] += r[j] * e[j]
        activate(TANH, n)
        for j in range(size):
            h[j] = n[j] + z[j] * (h_prev[j] - n[j])
    else:
        activate(kind, a)
        copy(a, h)


@compiled_sums
def spread(x: Any, y: Any) -> None:
    """Copy x (N,) to all rows of y (B, N)."""
    for b in range(len(y)):
        copy(x, y[b])


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
        h, c: (L, B, M), the state; c of an LSTM alone.
        a: (B, G·M), the projected input of the lowest layer; overwritten.
        q: (B, M), scratch.
    """
    size = h.shape[2]
    early = a.shape[1] - size * (kind in (GRU, BEFORE))
    for layer in range(len(h)):
        if layer:
            spread(bias[layer - 1], a)
            add_products(weight_ih[layer - 1], h[layer - 1], a)
        weight, own = weight_hh[layer], h[layer]
        add_products(weight[:early], own, a[:, :early])
        if kind == GRU:
            spread(bias_hn[layer], q)
            add_products(weight[early:], own, q)
        elif kind == BEFORE:
            for b in range(len(a)):
                reset(a[b, :early], own[b], q[b])
            add_products(weight[early:], q, a[:, early:])
        for b in range(len(a)):
            unit(kind, a[b], q[b], own[b], c[layer, b], own[b], c[layer, b])


@kept
@compiled_sums
def predict(weight: Any, bias: Any, h: Any, scores: Any) -> None:
    """Compute the scores (B, V) of all symbols, or another product with a matrix: W h + b."""
    spread(bias, scores)
    add_products(weight, h, scores)


_MULTIPLIER, _MIXER, _POSITIVE = np.int64(1_000_003), np.int64(0x9E37_79B1), np.int64(0x7FFF_FFFF)


@kept
@compiled_sums
def embed(symbols: Any, recent: Any, count: int, embedding: Any, tables: Any, begins: Any, exact: int, x: Any) -> None:
    """Compute the inputs of the lowest layer, x (B, E): embeddings of symbols, and of the n-grams that they end.

    Args:
        symbols: (B,), −1 for the last row of the embedding.
        recent: (B, N − 1) the symbols before them, the oldest first; they enter them.
        count: how many different symbols there are.
        embedding: (count, E).
        tables: (R, E), the tables of n-grams one after another, as `chainrule.layers._ngrams` makes them.
        begins: (N,) the first row of each, and R.
        exact: the longest n-gram with a separate row.
        x: written.
    """
    for b in range(len(x)):
        own, past = x[b], recent[b]
        symbol = symbols[b] if symbols[b] >= 0 else count - 1
        copy(embedding[symbol], own)
        for n in range(2, len(begins) + 1):
            first = len(past) - (n - 1)
            multiplier = np.int64(count) if n <= exact else _MULTIPLIER
            code = np.int64(past[first])
            for index in range(first + 1, len(past)):
                code = code * multiplier + past[index]
            code = code * multiplier + symbol
            if n > exact:
                code = ((code ^ (code >> 17)) * _MIXER & _POSITIVE) % (begins[n - 1] - begins[n - 2])
            row = tables[begins[n - 2] + code]
            for j in range(len(own)):
                own[j] += row[j]
        for index in range(len(past) - 1):
            past[index] = past[index + 1]
        if len(past):
            past[len(past) - 1] = symbol


@kept
@compiled_sums
def gated(
    time: int,
    h: Any,
    queues: Any,
    begins: Any,
    dilations: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    read: Any,
    a: Any,
    outputs: Any,
) -> None:
    """Compute the outputs of all layers; see `DilatedStack`.

    Args:
        time: the number of the sample; row i of the queue of n rows has the input at time i, i + n, ...
        h: (N,), the input of the first layer; overwritten.
        queues: (R, N), of all layers one after another; the present inputs enter them.
        begins: (L + 1,), the first row of each, and R.
        dilations: (L,).
        weight: (L, 2N, k·N), the taps one after another, the oldest first.
        bias: (L, 2N).
        residual: (L − 1, N, N), from outputs to changes of the input.
        read, a: (k·N,) and (2N,), scratch.
        outputs: (L, N), written.
    """
    channels = len(h)
    taps = len(read) // channels
    for layer in range(len(outputs)):
        first, rows = begins[layer], begins[layer + 1] - begins[layer]
        queue = queues[first : first + rows]
        for tap in range(taps - 1):
            back = (taps - 1 - tap) * dilations[layer]
            copy(queue[(time - back) % rows], read[tap * channels : (tap + 1) * channels])
        copy(h, read[(taps - 1) * channels :])
        copy(h, queue[time % rows])
        copy(bias[layer], a)
        add_product(weight[layer], read, a)
        values, openings, output = a[:channels], a[channels:], outputs[layer]
        for j in range(channels):
            output[j] = tanh(values[j]) * sigmoid(openings[j])
        if layer < len(residual):
            add_product(residual[layer], output, h)


@kept
@compiled_sums
def rectified_layers(
    x: Any,
    first: Any,
    first_bias: Any,
    second: Any,
    second_bias: Any,
    third: Any,
    third_bias: Any,
    hidden: Any,
    scores: Any,
) -> None:
    """Three linear layers with ReLU between; hidden (2, S) is scratch."""
    copy(first_bias, hidden[0])
    add_product(first, x, hidden[0])
    rectify(hidden[0])
    copy(second_bias, hidden[1])
    add_product(second, hidden[0], hidden[1])
    rectify(hidden[1])
    copy(third_bias, scores)
    add_product(third, hidden[1], scores)


@compiled
def first_place(keys: Any, wanted: int, low: int, high: int) -> int:
    """Return the first place from `low` on whose key is not smaller; `high` if there is none before it."""
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _read_ngram(symbol: int, contexts: Any, keys: Any, vocab_size: int) -> None:
    """Update the contexts (n − 1,) by one more symbol."""
    for index in range(len(contexts) - 1, 0, -1):
        number = -1
        if contexts[index - 1] >= 0:
            wanted = contexts[index - 1] * vocab_size + symbol
            at = first_place(keys, wanted, 0, len(keys))
            if at < len(keys) and keys[at] == wanted:
                number = at + vocab_size + 1
        contexts[index] = number
    contexts[0] = symbol


@kept
@compiled
def add_ngram_probs(
    weight: float, symbols: Any, contexts: Any, unigrams: Any, keys: Any, terms: Any, backoffs: Any, probs: Any
) -> None:
    """Add symbols (B,), −1 for none, to contexts (B, n − 1), and weight · p of every next symbol to probs (B, V)."""
    vocab_size, share = len(unigrams), unigrams.dtype.type(weight)
    for b in range(len(probs)):
        own, p = contexts[b], probs[b]
        if symbols[b] >= 0:
            _read_ngram(symbols[b], own, keys, vocab_size)
        scale = share
        for index in range(len(own)):
            if own[index] >= 0:
                scale *= backoffs[own[index]]
        for v in range(vocab_size):
            p[v] += unigrams[v] * scale
        for index in range(len(own)):
            context = own[index]
            if context < 0:
                continue
            scale = share
            for longer in range(len(own) - 1, index, -1):
                if own[longer] >= 0:
                    scale *= backoffs[own[longer]]
            at = first_place(keys, context * vocab_size, 0, len(keys))
            while at < len(keys) and keys[at] < (context + 1) * vocab_size:
                p[keys[at] - context * vocab_size] += terms[at] * scale
                at += 1


@kept
@compiled_sums
def add_softmax(weight: float, scores: Any, p: Any) -> None:
    """p += weight · softmax(scores), (B, V), and the scores become e^(scores − their greatest)."""
    for b in range(len(p)):
        row, sums, total = scores[b], p[b], 0.0
        most = row[0]
        for v in range(1, len(row)):
            most = max(most, row[v])
        for v in range(len(row)):
            row[v] = exp(row[v] - most)
        for v in range(len(row)):
            total += row[v]
        share = p.dtype.type(weight / total)
        for v in range(len(row)):
            sums[v] += share * row[v]


_LEAST_NOISE = float(np.finfo(np.float32).tiny)  # noise may be 0


@kept
@compiled
def draw(scores: Any, noise: Any, temperature: float) -> int:
    """Return the symbol with the greatest score less the log of its exponential noise; −1 if no score is greatest."""
    most = scores[0]
    for v in range(len(scores)):
        if scores[v] > most or math.isnan(scores[v]):
            most = scores[v]
    if not math.isfinite(most):
        return -1
    if temperature == 0:
        for v in range(len(scores)):
            if scores[v] == most:
                return v
    chosen, best = -1, -math.inf
    for v in range(len(scores)):
        value = (scores[v] - most) / temperature - math.log(max(noise[v], _LEAST_NOISE))
        if value > best:
            chosen, best = v, value
    return chosen
