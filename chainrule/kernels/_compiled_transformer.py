"""One element of a causal Transformer, for a single sequence; equations are as in `chainrule.layers`."""

import math
from typing import Any, NamedTuple

from chainrule.kernels._compiled_math import exp, sigmoid, tanh
from chainrule.kernels._compiled_models import add_product, copy, rectify
from chainrule.kernels._machine_code import compiled_sums, kept

ACTIVATIONS = {"gelu": 0, "gelu-tanh": 1, "relu": 2, "swiglu": 3}


class Weights(NamedTuple):
    """Weights and options of L blocks and of the norm after them."""

    norms: Any  # (2L + 1, 2, D), scales and shifts: two norms of each block, and the last one
    centred: bool  # layer norms, not RMS norms
    norm_first: bool  # post-norm has no last norm
    epsilon: float  # of the norms
    project: Any  # (L, (H + 2G)d, D), of queries, which come divided by √d, keys and values
    project_bias: Any  # (L, (H + 2G)d)
    join: Any  # (L, D, D), of what the heads have read
    join_bias: Any  # (L, D)
    slopes: Any  # (H,), of ALiBi; zeros without
    activation: int  # of `ACTIVATIONS`
    first: Any  # (L, F, D), 2F for SwiGLU
    first_bias: Any  # (L, F)
    second: Any  # (L, D, F)
    second_bias: Any  # (L, D)


@compiled_sums
def _activate(kind: int, hidden: Any, units: Any) -> None:
    """Write the activations of hidden (F,), or of SwiGLU (2F,), to units (F,)."""
    one, half = hidden.dtype.type(1), hidden.dtype.type(0.5)
    if kind == 0:
        root = hidden.dtype.type(math.sqrt(0.5))
        for j in range(len(units)):
            units[j] = half * hidden[j] * (one + math.erf(hidden[j] * root))
    elif kind == 1:
        root, third = hidden.dtype.type(math.sqrt(2 / math.pi)), hidden.dtype.type(0.044715)
        for j in range(len(units)):
            a = hidden[j]
            units[j] = half * a * (one + tanh(root * (a + third * a * a * a)))
    elif kind == 2:
        copy(hidden[: len(units)], units)
        rectify(units)
    else:
        for j in range(len(units)):
            units[j] = hidden[j] * sigmoid(hidden[j]) * hidden[len(units) + j]


@compiled_sums
def _normalise(x: Any, norm: Any, centred: bool, epsilon: float, y: Any) -> None:
    """Write the norm of x (N,) to y, which may be x: a layer norm, or an RMS norm if not centred; norm is (2, N)."""
    mean, square, count = x.dtype.type(0), x.dtype.type(0), x.dtype.type(len(x))
    if centred:
        for j in range(len(x)):
            mean += x[j]
        mean /= count
    for j in range(len(x)):
        square += (x[j] - mean) * (x[j] - mean)
    factor = x.dtype.type(1 / math.sqrt(square / count + epsilon))
    scale, shift = norm[0], norm[1]
    for j in range(len(x)):
        y[j] = (x[j] - mean) * factor * scale[j] + shift[j]


@compiled_sums
def _turn(x: Any, turns: Any) -> None:
    """Rotate each pair of x (N,) by its angle; turns (N,) hold the cosine and the sine of each."""
    for j in range(0, len(x), 2):
        a, b = x[j], x[j + 1]
        x[j] = a * turns[j] - b * turns[j + 1]
        x[j + 1] = a * turns[j + 1] + b * turns[j]


@compiled_sums
def _attend(query: Any, keys: Any, values: Any, slope: Any, slot: int, scores: Any, y: Any) -> None:
    """Write to y (d,) what a query reads of the n elements held, keys and values (n, d), the present one in a slot."""
    held = len(scores)
    scores[:] = 0
    add_product(keys, query, scores)
    if slope != 0:
        for index in range(held):
            far = slot - index if index <= slot else slot - index + held
            scores[index] -= slope * scores.dtype.type(far)
    most, total = scores[0], scores.dtype.type(0)
    for index in range(1, held):
        most = max(most, scores[index])
    for index in range(held):
        scores[index] = exp(scores[index] - most)
    for index in range(held):
        total += scores[index]
    y[:] = 0
    quarter = held // 4
    for index in range(quarter):  # as in `add_product`
        a, b, c, d = index, index + quarter, index + 2 * quarter, index + 3 * quarter
        value_a, value_b, value_c, value_d = values[a], values[b], values[c], values[d]
        p_a, p_b, p_c, p_d = scores[a] / total, scores[b] / total, scores[c] / total, scores[d] / total
        for j in range(len(y)):
            y[j] += (p_a * value_a[j] + p_b * value_b[j]) + (p_c * value_c[j] + p_d * value_d[j])
    for index in range(4 * quarter, held):
        value, p = values[index], scores[index] / total
        for j in range(len(y)):
            y[j] += p * value[j]


@compiled_sums
def _add_branch(weight: Any, bias: Any, y: Any, x: Any) -> None:
    """x += W y + b."""
    for j in range(len(x)):
        x[j] += bias[j]
    add_product(weight, y, x)


@kept
@compiled_sums
def transform(
    x: Any, vector: Any, turns: Any, slot: int, held: int, cache: Any, w: Any,
    y: Any, heads: Any, hidden: Any, units: Any, scores: Any,
) -> None:  # fmt: skip
    """Compute the output of all blocks.

    Args:
        x: (D,), the input; overwritten by the output.
        vector: (D,), of the position, added to x; (0,) for none.
        turns: (d,), cosine and sine of each pair's angle; (0,) without rotary positions.
        slot: where the element enters the cache.
        held: elements that the cache then holds.
        cache: (2, L, G, W, d), keys and values.
        w: `Weights`.
        y, heads, hidden, units, scores: (D,), ((H + 2G)d,), (F,) or (2F,), (F,), (W,), scratch.
    """
    layers, groups, size = cache.shape[1], cache.shape[2], cache.shape[4]
    queries = len(w.slopes)
    for j in range(len(vector)):
        x[j] += vector[j]
    for layer in range(layers):
        norm1, norm2 = w.norms[2 * layer], w.norms[2 * layer + 1]
        if w.norm_first:
            _normalise(x, norm1, w.centred, w.epsilon, y)
        else:
            copy(x, y)
        copy(w.project_bias[layer], heads)
        add_product(w.project[layer], y, heads)
        if len(turns):
            for head in range(queries + groups):
                _turn(heads[head * size : (head + 1) * size], turns)
        for group in range(groups):
            key, value = (queries + group) * size, (queries + groups + group) * size
            copy(heads[key : key + size], cache[0, layer, group, slot])
            copy(heads[value : value + size], cache[1, layer, group, slot])
        for head in range(queries):
            group, begin, end = head * groups // queries, head * size, (head + 1) * size
            keys, values = cache[0, layer, group, :held], cache[1, layer, group, :held]
            _attend(heads[begin:end], keys, values, w.slopes[head], slot, scores[:held], y[begin:end])
        _add_branch(w.join[layer], w.join_bias[layer], y, x)
        if w.norm_first:
            _normalise(x, norm2, w.centred, w.epsilon, y)
        else:
            _normalise(x, norm1, w.centred, w.epsilon, x)
            copy(x, y)
        copy(w.first_bias[layer], hidden)
        add_product(w.first[layer], y, hidden)
        _activate(w.activation, hidden, units)
        _add_branch(w.second[layer], w.second_bias[layer], units, x)
        if not w.norm_first:
            _normalise(x, norm2, w.centred, w.epsilon, x)
    if w.norm_first:
        _normalise(x, w.norms[2 * layers], w.centred, w.epsilon, x)
