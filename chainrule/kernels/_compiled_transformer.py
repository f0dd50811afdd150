"""One element of a causal Transformer, for a few sequences; equations are as in `chainrule.layers`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from chainrule.kernels._compiled_math import exp, sigmoid, tanh
from chainrule.kernels._compiled_models import add_product, add_products, copy, rectify, spread
from chainrule.kernels._machine_code import compiled_sums, kept
from chainrule.state import State

Array: TypeAlias = npt.NDArray[Any]
Stepping: TypeAlias = tuple[Array, Callable[[], Array], Callable[[], State]]
"""Input (B, N) of a stack, a function that reads and overwrites it and returns h (B, M), and one for the state."""
_ROOM = 128  # elements until a cache moves to a new buffer
AHEAD = 64  # positions whose vectors and turns are computed together
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
def _attend(query: Any, keys: Any, values: Any, slope: Any, scores: Any, y: Any) -> None:
    """Write to y (d,) what a query reads of n elements, keys and values (n, d), the present one the last."""
    held = len(scores)
    scores[:] = 0
    add_product(keys, query, scores)
    if slope != 0:
        for index in range(held):
            scores[index] -= slope * scores.dtype.type(held - 1 - index)
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
    """x += y Wᵀ + b, rows of x and y."""
    for b in range(len(x)):
        for j in range(len(bias)):
            x[b, j] += bias[j]
    add_products(weight, y, x)


@compiled_sums
def _normalise_rows(x: Any, norm: Any, w: Any, y: Any) -> None:
    for b in range(len(x)):
        _normalise(x[b], norm, w.centred, w.epsilon, y[b])


@kept
@compiled_sums
def transform(
    x: Any, vectors: Any, turns: Any, first: int, count: Any, window: int, end: int, cache: Any, w: Any,
    y: Any, heads: Any, hidden: Any, units: Any, scores: Any,
) -> None:  # fmt: skip
    """Compute the output of all blocks for B sequences.

    Args:
        x: (B, D), the input; overwritten by the output.
        vectors: (m, D), of positions, added to x; (m, 0) for none.
        turns: (m, d), cosine and sine of each pair's angle; (m, 0) without rotary positions.
        first: row of both for the first sequence; the others have the rows that follow.
        count: (B,) elements of each sequence before this one, which is added.
        window: the last of them that its query reads.
        end: number of slots in use; the new elements take the last of them.
        cache: (2, L, B, G, C, d), keys and values.
        w: `Weights`.
        y, heads, hidden, units, scores: (B, D), (B, (H + 2G)d), (B, F) or (B, 2F), (B, F), (C,), scratch.
    """
    rows, layers, groups, size = len(x), cache.shape[1], cache.shape[3], cache.shape[5]
    queries = len(w.slopes)
    for b in range(rows):
        count[b] += 1
        for j in range(vectors.shape[1]):
            x[b, j] += vectors[first + b, j]
    for layer in range(layers):
        norm1, norm2 = w.norms[2 * layer], w.norms[2 * layer + 1]
        if w.norm_first:
            _normalise_rows(x, norm1, w, y)
        else:
            for b in range(rows):
                copy(x[b], y[b])
        spread(w.project_bias[layer], heads)
        add_products(w.project[layer], y, heads)
        for b in range(rows):
            own, begin = heads[b], end - min(count[b], min(window, end))
            if turns.shape[1]:
                for head in range(queries + groups):
                    _turn(own[head * size : (head + 1) * size], turns[first + b])
            for group in range(groups):
                key, value = (queries + group) * size, (queries + groups + group) * size
                copy(own[key : key + size], cache[0, layer, b, group, end - 1])
                copy(own[value : value + size], cache[1, layer, b, group, end - 1])
            for head in range(queries):
                group, at = head * groups // queries, head * size
                keys, values = cache[0, layer, b, group, begin:end], cache[1, layer, b, group, begin:end]
                query, read = own[at : at + size], y[b, at : at + size]
                _attend(query, keys, values, w.slopes[head], scores[: end - begin], read)
        _add_branch(w.join[layer], w.join_bias[layer], y, x)
        if w.norm_first:
            _normalise_rows(x, norm2, w, y)
        else:
            _normalise_rows(x, norm1, w, x)
            for b in range(rows):
                copy(x[b], y[b])
        spread(w.first_bias[layer], hidden)
        add_products(w.first[layer], y, hidden)
        for b in range(rows):
            _activate(w.activation, hidden[b], units[b])
        _add_branch(w.second[layer], w.second_bias[layer], units, x)
        if not w.norm_first:
            _normalise_rows(x, norm2, w, x)
    if w.norm_first:
        _normalise_rows(x, w.norms[2 * layers], w, x)


def array(tensor: torch.Tensor) -> Array:
    """Return a tensor's numbers as a contiguous array, which shares its memory if possible."""
    return np.ascontiguousarray(tensor.detach().numpy())


@dataclass
class _Cache:
    """Keys and values of a few sequences in a buffer (2, L, B, G, C, d), with room behind them."""

    numbers: Array
    end: int  # slots filled; each sequence ends there
    count: Array  # (B,) elements read
    shared: bool  # whether states look at it
    scores: Array  # (C,), scratch
    scratch: list[Array]  # and x


class Blocks:
    """Transformer blocks.

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
        weights: Weights,
        window: int,
        positioned: bool,
        places: Callable[[int], tuple[Array, Array]],
    ):
        self._weights, self._window, self._positioned, self._places = weights, window, positioned, places
        self._last: tuple[State, _Cache] | None = None
        self._ahead = dict[int, tuple[Array, Array]]()
        self.width = weights.join.shape[1]
        hidden = weights.project.shape[1], weights.first.shape[1], weights.second.shape[2]
        self._widths = self.width, self.width, *hidden

    def begin(self, state: State) -> Stepping:
        """Go on from a state."""
        cache, weights, window = self._cached(state), self._weights, self._window
        x, *scratch = cache.scratch

        def step() -> Array:
            place, count = self._placed(cache.count), cache.count
            if cache.end == len(cache.scores):
                self._make_room(cache)
            cache.end += 1
            transform(x, *place, count, window, cache.end, cache.numbers, weights, *scratch, cache.scores)
            return x

        return x, step, lambda: self._state(cache)

    def _cached(self, state: State) -> _Cache:
        last, self._last = self._last, None
        if last is not None and last[0] is state:
            return last[1]
        blocks, kind = state["blocks"], self._weights.join.dtype
        parts = [torch.stack([block[name] for block in blocks]).detach().numpy() for name in ("keys", "values")]
        layers, rows, groups, held, size = parts[0].shape
        numbers = np.empty((2, layers, rows, groups, held + _ROOM, size), kind)
        for part, own in zip(parts, numbers, strict=True):
            own[:, :, :, :held] = part
        scratch = [np.empty((rows, width), kind) for width in self._widths]
        count = blocks[0]["count"].numpy().copy()
        return _Cache(numbers, held, count, False, np.empty(held + _ROOM, kind), scratch)

    def _make_room(self, cache: _Cache) -> None:
        old, end = cache.numbers, cache.end
        cache.end = held = min(self._window - 1, end)
        *shape, slots, size = old.shape
        if cache.shared or slots < held + _ROOM:
            slots, cache.shared = held + _ROOM, False
            cache.numbers, cache.scores = np.empty((*shape, slots, size), old.dtype), np.empty(slots, old.dtype)
        for own, before in zip(cache.numbers.reshape(-1, slots, size), old.reshape(-1, end, size), strict=True):
            own[:held] = before[end - held :]

    def _placed(self, count: Array) -> tuple[Array, Array, int]:
        """Return vectors and turns of positions, and the row of the next element of the first sequence."""
        if len(count) == 1:
            return self._place(int(count[0]))
        places = [self._place(position) for position in count.tolist()]
        return np.stack([part[row] for part, _, row in places]), np.stack([part[row] for _, part, row in places]), 0

    def _place(self, position: int) -> tuple[Array, Array, int]:
        """Return vectors and turns of some positions, and the row of this one."""
        first, row = position - position % AHEAD, position % AHEAD
        if first not in self._ahead:
            if len(self._ahead) > AHEAD:
                self._ahead.clear()
            self._ahead[first] = self._places(first)
        vectors, turns = self._ahead[first]
        if row >= len(vectors):  # they end
            self._places(position)
        return vectors, turns, row

    def _state(self, cache: _Cache) -> State:
        length, count = min(self._window - 1, cache.end), torch.from_numpy(cache.count.copy())
        keys, values = torch.from_numpy(cache.numbers).narrow(4, cache.end - length, length).unbind()
        pairs = zip(keys.unbind(), values.unbind(), strict=True)
        blocks = tuple({"keys": key, "values": value, "count": count} for key, value in pairs)
        state = {"blocks": blocks, "position": count if self._positioned else None}
        self._last, cache.shared = (state, cache), True
        return state
