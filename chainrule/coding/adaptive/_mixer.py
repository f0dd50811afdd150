r"""The mixer: a gated network of two layers of logistic neurons, each trained on its own code length.

The inputs x are stretched probabilities. A neuron k of the first layer has a table of weight vectors, of which
something known of the past picks one, w (the gate); it gives

.. math:: p_k = \mathrm{squash}(w \cdot x), \qquad w \leftarrow w + \eta\, (y - p_k)\, x,

which is gradient descent on the cost of the bit y, since -∂/∂w of -ln p_k(y) is (y - p_k) x. The neuron of the second
layer mixes w_k · x in the same way. η falls as :math:`\eta_\infty + \eta_0 / (1 + t/\tau)` with the number t of bits.

Mahoney 2005; Veness et al. 2021, "Gated linear networks"; Knoll, cmix.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._logistic import LIMIT, squash
from chainrule.kernels._machine_code import compiled

ONE = 1 << 16  # the weight 1
_RATE_BITS = 22  # error (16 bits) * input (8 bits) * rate (14 bits) -> weight (16 bits)


class Mixer(NamedTuple):
    """Weights, and the present inputs and outputs.

    Attributes:
        inputs: (N,) stretched probabilities.
        weights: (rows, N) of the first layer, in multiples of 2^-16: all tables of all neurons.
        rows: (K,) the row that each neuron uses now.
        outputs: (K,) stretched probabilities of the first layer.
        last_weights: (rows, K) of the second layer.
        last_row: (1,) the row that it uses now.
        last_output: (1,) its stretched probability.
        time: (1,) bits learnt.
        rates: (5,) in multiples of 2^-14: η∞ and η0 of the first layer, of the second; and τ in bits.
    """

    inputs: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    outputs: np.ndarray
    last_weights: np.ndarray
    last_row: np.ndarray
    last_output: np.ndarray
    time: np.ndarray
    rates: np.ndarray


def make_mixer(beginning: np.ndarray, rows: int, neurons: int, last_rows: int, rates: tuple[int, ...]) -> Mixer:
    """A mixer of N inputs whose neurons begin with the N weights `beginning`, and with their mean at the end."""
    return Mixer(
        np.zeros(len(beginning), np.int32),
        np.tile(beginning, (rows, 1)).astype(np.int32),
        np.zeros(neurons, np.int64),
        np.zeros(neurons, np.int32),
        np.full((last_rows, neurons), ONE // neurons, np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.array(rates, np.int64),
    )


@compiled
def _dot(weights: np.ndarray, inputs: np.ndarray) -> int:
    total = 0
    for i in range(len(inputs)):
        total += weights[i] * inputs[i]
    return min(LIMIT, max(-LIMIT, total >> 16))


@compiled
def _descend(weights: np.ndarray, inputs: np.ndarray, output: int, bit: int, rate: int) -> None:
    step = np.int32(((bit << 16) - squash(output)) * rate)  # factors of 32 bits are multiplied several at a time
    for i in range(len(inputs)):
        weights[i] += (inputs[i] * step + (1 << _RATE_BITS - 1)) >> _RATE_BITS


@compiled
def mix(mixer: Mixer) -> int:
    """The stretched probability of the inputs under the rows that were chosen."""
    inputs, weights, rows, outputs = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs
    for k in range(len(rows)):
        outputs[k] = _dot(weights[rows[k]], inputs)
    stretched = _dot(mixer.last_weights[mixer.last_row[0]], outputs)
    mixer.last_output[0] = stretched
    return stretched


@compiled
def update(mixer: Mixer, bit: int) -> None:
    """One step of gradient descent for the rows that were used."""
    inputs, weights, rows, outputs, rates = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs, mixer.rates
    falling = (rates[4] << 16) // (rates[4] + mixer.time[0])
    rate = rates[0] + (rates[1] * falling >> 16)
    for k in range(len(rows)):
        _descend(weights[rows[k]], inputs, outputs[k], bit, rate)
    rate = rates[2] + (rates[3] * falling >> 16)
    _descend(mixer.last_weights[mixer.last_row[0]], outputs, mixer.last_output[0], bit, rate)
    mixer.time[0] += 1
