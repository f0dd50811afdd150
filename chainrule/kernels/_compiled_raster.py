"""Rows of images drawn in compiled loops, by a list of small products over a flat memory; see `_raster_program`."""

from typing import Any

from chainrule.kernels._compiled_math import exp, sigmoid
from chainrule.kernels._compiled_models import copy, draw
from chainrule.kernels._machine_code import compiled_sums, kept


@compiled_sums
def _add_product(weight: Any, x: Any, y: Any) -> None:
    """y += x W: weight (N·M,) by rows of M, x (N,), y (M,)."""
    size, i = len(y), 0
    while i + 8 <= len(x):
        w = weight[i * size : (i + 8) * size]
        x0, x1, x2, x3, x4, x5, x6, x7 = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4], x[i + 5], x[i + 6], x[i + 7]
        for j in range(size):
            w0, w1, w2, w3 = w[j], w[size + j], w[2 * size + j], w[3 * size + j]
            w4, w5, w6, w7 = w[4 * size + j], w[5 * size + j], w[6 * size + j], w[7 * size + j]
            y[j] = y[j] + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3 + w4 * x4 + w5 * x5 + w6 * x6 + w7 * x7
        i += 8
    while i < len(x):
        w, x0 = weight[i * size : (i + 1) * size], x[i]
        for j in range(size):
            y[j] += w[j] * x0
        i += 1


@compiled_sums
def _add_products(weight: Any, x: Any, u: Any, y: Any, v: Any) -> None:
    """y += x W and v += u W, for which the weights are loaded once."""
    size, i = len(y), 0
    while i + 4 <= len(x):
        w = weight[i * size : (i + 4) * size]
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        u0, u1, u2, u3 = u[i], u[i + 1], u[i + 2], u[i + 3]
        for j in range(size):
            w0, w1, w2, w3 = w[j], w[size + j], w[2 * size + j], w[3 * size + j]
            y[j] = y[j] + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
            v[j] = v[j] + w0 * u0 + w1 * u1 + w2 * u2 + w3 * u3
        i += 4
    if i < len(x):
        _add_product(weight[i * size :], x[i:], y)
        _add_product(weight[i * size :], u[i:], v)


@compiled_sums
def _compute(op: Any, column: int, memory: Any, weights: Any, sums: Any) -> None:
    """Compute the outputs of an operation at a column."""
    reads, outs = op[5], op[9]
    a, base = sums[0, :outs], op[7] + column * op[8]
    copy(memory[base : base + outs], a)
    for row in range(op[3]):
        x, weight = op[1] + column * op[2] + row * op[4], op[6] + row * reads * outs
        _add_product(weights[weight:], memory[x : x + reads], a)
    _write(op, column, memory, a)


@compiled_sums
def _compute_two(
    op: Any, column: int, memory: Any, other_column: int, other_memory: Any, weights: Any, sums: Any
) -> None:
    """Compute the outputs of an operation at two columns, or in two images."""
    reads, outs = op[5], op[9]
    a, b = sums[0, :outs], sums[1, :outs]
    base, other_base = op[7] + column * op[8], op[7] + other_column * op[8]
    copy(memory[base : base + outs], a)
    copy(other_memory[other_base : other_base + outs], b)
    for row in range(op[3]):
        start, weight = op[1] + row * op[4], op[6] + row * reads * outs
        x, u = start + column * op[2], start + other_column * op[2]
        _add_products(weights[weight:], memory[x : x + reads], other_memory[u : u + reads], a, b)
    _write(op, column, memory, a)
    _write(op, other_column, other_memory, b)


@compiled_sums
def _write(op: Any, column: int, memory: Any, a: Any) -> None:
    """Write the outputs of an operation from its sums."""
    outs, kind = op[9], op[10]
    y, half = memory[op[13] + column * op[14] :], outs // 2
    one, two = a.dtype.type(1), a.dtype.type(2)
    if kind == 0:
        copy(a, y[:outs])
    elif kind == 1:
        for j in range(outs):
            y[j] = a.dtype.type(0) if a[j] < 0 else a[j]  # NaN stays
    elif kind == 2:
        for j in range(half):
            y[j] = (two * sigmoid(two * a[j]) - one) * sigmoid(a[half + j])
    elif kind == 3:
        for j in range(outs):
            small = exp(-abs(a[j])) - one
            y[j] = a[j] if a[j] > 0 else small
            y[outs + j] = small if a[j] > 0 else -a[j]
    else:
        x = memory[op[11] + column * op[12] :]
        for j in range(half):
            y[j] = x[j] + a[j] * sigmoid(a[half + j])


@kept
@compiled_sums
def draw_row(
    row: int,
    row_operations: Any,
    operations: Any,
    ends: Any,
    shifts: Any,
    weights: Any,
    sums: Any,
    memory: Any,
    pixels: int,
    levels: int,
    scores: int,
    log_noise: Any,
    known: int,
    drawn: Any,
) -> bool:
    """Draw a row of images; return whether every distribution was valid.

    Args:
        row: the number of the row.
        row_operations: (n, F) operations before the first pixel, each at all columns.
        operations: (n, F) operations at each pixel.
        ends: (C,) how many of them come before the draw of each colour.
        shifts: (n, 4) features whose rows move up after this row: resolution, address, size of a row, rows.
        weights: flat.
        sums: scratch.
        memory: (B, S) features, biases.
        pixels: address of column 0 of the present row.
        levels: V.
        scores: address of the scores (V,) of the first colour, with those of the others behind them.
        log_noise: (W·C, B, V).
        known: how many elements of the row are known.
        drawn: (B, W·C), the elements; the known ones are set.
    """
    colours, width = len(ends), drawn.shape[1] // len(ends)
    scale = memory.dtype.type(2 / (levels - 1))
    for first in range(0, len(memory), 2):
        images = range(first, min(first + 2, len(memory)))
        for image in images:
            for op in row_operations:
                if row & ((1 << op[0]) - 1) == 0:
                    columns = ((width - 1) >> op[0]) + 1
                    for column in range(0, columns - 1, 2):
                        _compute_two(op, column, memory[image], column + 1, memory[image], weights, sums)
                    if columns % 2:
                        _compute(op, columns - 1, memory[image], weights, sums)
        for column in range(width):
            index = 0
            for colour in range(colours):
                while index < ends[colour]:
                    op, place = operations[index], column >> operations[index, 0]
                    if (row | column) & ((1 << op[0]) - 1) == 0:
                        if len(images) == 2:
                            _compute_two(op, place, memory[first], place, memory[first + 1], weights, sums)
                        else:
                            _compute(op, place, memory[first], weights, sums)
                    index += 1
                at, element = scores + colour * levels, column * colours + colour
                for image in images:
                    own = memory[image]
                    if element >= known:
                        drawn[image, element] = draw(own[at : at + levels], log_noise[element, image], 1.0)
                        if drawn[image, element] < 0:
                            return False
                    own[pixels + element] = own.dtype.type(drawn[image, element]) * scale - own.dtype.type(1)
        for image in images:
            for level, start, size, rows in shifts:
                if row & ((1 << level) - 1) == 0:
                    own = memory[image]
                    copy(own[start + size : start + rows * size], own[start : start + (rows - 1) * size])
    return True
