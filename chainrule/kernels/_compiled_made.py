"""A block of a MADE's columns for many rows in one compiled loop: units of a degree, logit, draw, next column."""

from typing import Any

from chainrule.kernels._compiled_math import sigmoid
from chainrule.kernels._compiled_models import rectify
from chainrule.kernels._machine_code import compiled_sums, kept

_TILE = 256  # rows of x at a time, whose units of a block stay in the second cache


@compiled_sums
def _add_product(weight: Any, at: int, units: Any, first: int, count: int, begin: int, end: int, y: Any) -> None:
    """y += Σ_k weight[at + k] units[first + k], (B,), for rows of x from `begin` to `end`."""
    y, k = y[begin:end], 0
    while k + 4 <= count:
        a, b, c, d = weight[at + k], weight[at + k + 1], weight[at + k + 2], weight[at + k + 3]
        p, q, r, s = units[first + k], units[first + k + 1], units[first + k + 2], units[first + k + 3]
        p, q, r, s = p[begin:end], q[begin:end], r[begin:end], s[begin:end]
        for row in range(len(y)):
            y[row] += (a * p[row] + b * q[row]) + (c * r[row] + d * s[row])
        k += 4
    while k < count:
        a, p = weight[at + k], units[first + k][begin:end]
        for row in range(len(y)):
            y[row] += a * p[row]
        k += 1


@compiled_sums
def _draw(logits: Any, column: Any) -> bool:
    """Replace each uniform number by 1 if it is below σ(logit), else by 0; return false if a logit is NaN."""
    one, total = column.dtype.type(1), column.dtype.type(0)
    for row in range(len(column)):
        p = sigmoid(logits[row])
        total += p
        column[row] = one if column[row] < p else column.dtype.type(0)
    return bool(total == total)


@kept
@compiled_sums
def draw_block(units: Any, firsts: Any, complete: Any, weight: Any, begins: Any, logits: Any, known: int) -> int:
    """Draw a block of n columns; the first of them whose probabilities are NaN, or n.

    Args:
        units: (M, B), written: the columns and units of each place one after another. Those of the block hold
            uniform numbers (known columns: their values) and what earlier blocks contribute to pre-activations.
        firsts: (L + 1,), the block's first row of each place: the columns, then L hidden layers.
        complete: (L + 1, n + 1), how many columns and units of the block are complete after j columns; the row of
            the columns is not read.
        weight: flat, the matrices between units of the block: of each hidden layer from the place before it, of the
            logits from the last place, and from the columns if there is one matrix more.
        begins: (L + 1 or L + 2, 2), where each matrix begins in `weight`, and the length of its rows.
        logits: (n, B), what earlier blocks contribute to them; they are written.
        known: how many of the columns are given.
    """
    columns, batch = logits.shape
    layers = len(firsts) - 1
    wrong = columns
    for begin in range(0, batch, _TILE):
        end = min(begin + _TILE, batch)
        for j in range(columns):
            read = j  # units of the place below that are complete
            for layer in range(1, layers + 1):
                for unit in range(complete[layer, j], complete[layer, j + 1]):
                    at = begins[layer - 1, 0] + unit * begins[layer - 1, 1]
                    h = units[firsts[layer] + unit]
                    _add_product(weight, at, units, firsts[layer - 1], read, begin, end, h)
                    rectify(h[begin:end])
                read = complete[layer, j + 1]
            if j < known:
                continue
            logit, column = logits[j], units[firsts[0] + j]
            at = begins[layers, 0] + j * begins[layers, 1]
            _add_product(weight, at, units, firsts[layers], read, begin, end, logit)
            if len(begins) > layers + 1:
                at = begins[layers + 1, 0] + j * begins[layers + 1, 1]
                _add_product(weight, at, units, firsts[0], j, begin, end, logit)
            if not _draw(logit[begin:end], column[begin:end]):
                wrong = min(wrong, j)
    return wrong
