"""Rows of images drawn in compiled loops, by a list of small products over a flat memory; see `_raster_program`."""

import math
from typing import Any, NamedTuple

import numpy as np

from chainrule.kernels._compiled_math import exp, sigmoid
from chainrule.kernels._compiled_models import copy, draw, rectify
from chainrule.kernels._machine_code import compiled, compiled_sums, kept

_ZERO, _ONE = np.int64(0), np.int64(1)  # with a bare number numba would compile a function for this number alone


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
def _add_products(weight: Any, x: Any, stride: int, reads: int, y: Any) -> None:
    """Add four products, which share the weights' loads; x of each is `stride` behind the one before, y (4·M,)."""
    size, i = len(y) // 4, 0
    p, q, r, t = y[:size], y[size : 2 * size], y[2 * size : 3 * size], y[3 * size :]
    while i + 2 <= reads:
        w = weight[i * size : (i + 2) * size]
        p0, p1 = x[i], x[i + 1]
        q0, q1 = x[stride + i], x[stride + i + 1]
        r0, r1 = x[2 * stride + i], x[2 * stride + i + 1]
        t0, t1 = x[3 * stride + i], x[3 * stride + i + 1]
        for j in range(size):
            w0, w1 = w[j], w[size + j]
            p[j] = p[j] + w0 * p0 + w1 * p1
            q[j] = q[j] + w0 * q0 + w1 * q1
            r[j] = r[j] + w0 * r0 + w1 * r1
            t[j] = t[j] + w0 * t0 + w1 * t1
        i += 2
    if i < reads:
        for k in range(4):
            last = x[k * stride + i]
            for j in range(size):
                y[k * size + j] += weight[i * size + j] * last


@compiled_sums
def _compute(
    op: Any, column: int, memory: Any, count: int, column_step: int, stride: int, weights: Any, sums: Any
) -> None:
    """Compute the outputs of an operation at a column, or at four columns, or in four images `stride` numbers apart."""
    reads, outs = op[5], op[9]
    for k in range(count):
        base = op[7] + (column + k * column_step) * op[8] + k * stride
        copy(memory[base : base + outs], sums[k * outs : (k + 1) * outs])
    for row in range(op[3]):
        x, weight = op[1] + column * op[2] + row * op[4], op[6] + row * reads * outs
        if count == 4:
            _add_products(weights[weight:], memory[x:], column_step * op[2] + stride, reads, sums[: 4 * outs])
        else:
            _add_product(weights[weight:], memory[x : x + reads], sums[:outs])
    for k in range(count):
        _write(op, column + k * column_step, memory[k * stride :], sums[k * outs : (k + 1) * outs])


@compiled_sums
def _write(op: Any, column: int, memory: Any, a: Any) -> None:
    """Write the outputs of an operation from its sums."""
    outs, kind = op[9], op[10]
    y, half = memory[op[13] + column * op[14] :], outs // 2
    one, two = a.dtype.type(1), a.dtype.type(2)
    if kind <= 1:
        copy(a, y[:outs])
        if kind == 1:
            rectify(y[:outs])
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


@compiled
def _draw_colour(
    logits: Any, means: Any, log_scales: Any, noise: Any, logistic: float, levels: int, limit: float
) -> int:
    """Draw an integer from a mixture of logistics; see `DiscretizedLogisticMixture.sample`. −1 if it is not valid."""
    component = draw(logits, noise, 1.0)
    if component < 0:
        return -1
    mean, log_scale = float(means[component]), float(log_scales[component])
    if not math.isfinite(mean) or math.isnan(log_scale):
        return -1
    number = mean + math.exp(min(log_scale, limit)) * logistic
    value = min(max(math.floor((number + 1) * (levels / 2)), 0.0), levels - 1.0)
    # Rounding may move a draw into the next bin: compare it with the edges that log_prob uses.
    inverse = math.exp(min(-log_scale, limit))
    lower, upper = (value * (2 / levels) - 1 - mean) * inverse, ((value + 1) * (2 / levels) - 1 - mean) * inverse
    value += 1.0 if logistic >= upper else -1.0 if logistic < lower else 0.0
    return int(min(max(value, 0.0), levels - 1.0))


@compiled
def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


@compiled
def _log_mass(value: int, mean: float, log_scale: float, levels: int, limit: float) -> float:
    """Return the log-mass of a logistic in the bin of an integer; see `log_bin_mass`."""
    inverse, log_width = math.exp(min(-log_scale, limit)), math.log(2 / levels) - log_scale
    first, last, mass = value == 0, value == levels - 1, 0.0
    if not last:
        mass += _log_sigmoid(((value + 1) * (2 / levels) - 1 - mean) * inverse)
    if not first:
        mass += _log_sigmoid(-(value * (2 / levels) - 1 - mean) * inverse)
    if not (first or last):
        mass += log_width if log_width < -40 else math.log(-math.expm1(-math.exp(min(log_width, 5.0))))
    return mass


@compiled
def _draw_pixel(
    parameters: Any, levels: int, components: int, limit: float, noise: Any, logistic: Any, known: int, colours: Any
) -> bool:
    """Draw the unknown colours of a pixel from a `PixelLogisticMixture`, whose parameters are overwritten."""
    count = len(colours)
    rows = parameters.reshape(-1, components)
    logits, means, log_scales, coefficients = rows[0], rows[1:], rows[1 + count :], rows[1 + 2 * count :]
    finest = math.log(2 / levels) - 3.5
    for colour in range(count):
        for k in range(components):  # see `PixelLogisticMixture.from_parameters`
            log_scale = float(log_scales[colour, k])
            log_scales[colour, k] = max(log_scale, finest) + math.log1p(math.exp(-abs(log_scale - finest)))
        if colour >= known:
            colours[colour] = _draw_colour(
                logits, means[colour], log_scales[colour], noise[colour], logistic[colour], levels, limit
            )
            if colours[colour] < 0:
                return False
        if colour == count - 1:
            break
        value = colours[colour]
        centre = (2 * value + 1) / levels - 1
        for k in range(components):
            logits[k] += _log_mass(value, means[colour, k], log_scales[colour, k], levels, limit)
            for later in range(colour + 1, count):
                means[later, k] += coefficients[later * (later - 1) // 2 + colour, k] * centre
    return True


class Images(NamedTuple):
    """Images that are drawn row by row: the operations of their model, and the memory that these read and write."""

    row_operations: Any  # (n, F) before the first pixel of a row, each at all columns
    operations: Any  # (n, F) at each pixel
    ends: Any  # how many of them come before the draw of each colour, or (1,) of them all
    shifts: Any  # (n, 4) features whose rows move up after a row: resolution, address, size of a row, rows
    weights: Any  # flat
    sums: Any  # scratch
    memory: Any  # (B, S) features, biases
    pixels: int  # address of column 0 of the present row
    step: int  # numbers of a pixel: C, and a one inside the image if there is room
    levels: int  # V
    colours: int  # C
    scores: int  # address of the scores (V,) of the first colour, the others' behind them; or of the parameters
    components: int  # K of a mixture; 0 for tables
    limit: float  # largest log-scale
    noise: Any  # (W·C, B, V or K), exponential
    logistic: Any  # (W·C, B), noise of that density, for mixtures


@kept
@compiled_sums
def draw_row(row: int, known: int, images: Images, drawn: Any) -> bool:
    """Draw row `row` of some images to drawn (B, W·C), whose first `known` elements are set.

    Returns whether every distribution was valid.
    """
    row_operations, operations, ends, weights, sums = (
        images.row_operations, images.operations, images.ends, images.weights, images.sums,
    )  # fmt: skip
    memory, noise, logistic = images.memory, images.noise, images.logistic
    levels, colours, scores, components = images.levels, images.colours, images.scores, images.components
    pixels, step = images.pixels, images.step
    width = drawn.shape[1] // colours
    scale = memory.dtype.type(2 / (levels - 1))
    rows, size = memory.shape
    flat = memory.reshape(-1)
    for first in range(0, rows, 4):
        last = min(first + 4, rows)
        for image in range(first, last):
            for index in range(len(row_operations)):
                op = row_operations[index]
                if row & ((1 << op[0]) - 1) == 0:
                    columns = ((width - 1) >> op[0]) + 1
                    fours = columns // 4 * 4
                    for column in range(columns):
                        if column % 4 == 0 or column >= fours:
                            count = 4 if column < fours else 1
                            _compute(op, column, memory[image], count, _ONE, _ZERO, weights, sums)
        for column in range(width):
            index = 0
            for group in range(len(ends)):
                while index < ends[group]:
                    op, place = operations[index], column >> operations[index, 0]
                    if (row | column) & ((1 << op[0]) - 1) == 0:
                        count = 4 if last - first == 4 else 1
                        for image in range(first, last, count):
                            _compute(op, place, flat[image * size :], count, _ZERO, size, weights, sums)
                    index += 1
                count = colours if components else 1
                element = column * colours + group
                for image in range(first, last):
                    own, pixel = memory[image], drawn[image, element : element + count]
                    if components:
                        valid = _draw_pixel(
                            own[scores : scores + (1 + 2 * colours + colours * (colours - 1) // 2) * components],
                            levels, components, images.limit, noise[element : element + count, image],
                            logistic[element : element + count, image], known - element, pixel,
                        )  # fmt: skip
                    else:
                        at = scores + group * levels
                        if element >= known:
                            pixel[0] = draw(own[at : at + levels], noise[element, image], 1.0)
                        valid = pixel[0] >= 0
                    if not valid:
                        return False
                    at = pixels + column * step + group
                    for colour in range(count):
                        own[at + colour] = own.dtype.type(pixel[colour]) * scale - own.dtype.type(1)
                    if step > colours:
                        own[at + colours] = own.dtype.type(1)
        for image in range(first, last):
            for level, start, length, held in images.shifts:
                if row & ((1 << level) - 1) == 0:
                    own = memory[image]
                    copy(own[start + length : start + held * length], own[start : start + (held - 1) * length])
    return True
