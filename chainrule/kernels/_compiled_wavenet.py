"""One sample of a WaveNet from queues of past inputs, in a compiled loop."""

from typing import Any

from chainrule.kernels._compiled_math import sigmoid, tanh
from chainrule.kernels._compiled_products import add_product, copy
from chainrule.kernels._machine_code import compiled_sums, kept


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
    """Compute the outputs of all layers; see `chainrule.layers.DilatedStack`.

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
    _rectify(hidden[0])
    copy(second_bias, hidden[1])
    add_product(second, hidden[0], hidden[1])
    _rectify(hidden[1])
    copy(third_bias, scores)
    add_product(third, hidden[1], scores)


@compiled_sums
def _rectify(x: Any) -> None:
    for j in range(len(x)):
        x[j] = x.dtype.type(0) if x[j] < 0 else x[j]  # NaN stays
