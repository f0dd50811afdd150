r"""Mixer: a gated network of two layers of logistic neurons, each trained on its code length.

The inputs x are stretched probabilities. A neuron k of the first layer has a table of weight vectors, and a feature of
the past (the gate) selects one of them, w:

.. math:: p_k = \mathrm{squash}(w \cdot x), \qquad w \leftarrow w + \eta\, (y - p_k)\, x,

This is gradient descent on the cost of the bit y, since -∂/∂w of -ln p_k(y) is (y - p_k) x. The neuron of the second
layer mixes w_k · x in the same way. η falls as :math:`\eta_\infty + \eta_0 / (1 + t/\tau)` with the number of bits t.

Mahoney 2005; Veness et al. 2021, "Gated linear networks"; Knoll, cmix.
"""

from typing import NamedTuple

import numpy as np

from chainrule.coding.adaptive._probabilities import LIMIT, squash
from chainrule.kernels._machine_code import compiled

ONE = 1 << 16  # the weight 1
_RATE_BITS = 22  # error (16 bits) * input (8 bits) * rate (14 bits) -> weight (16 bits)


class Mixer(NamedTuple):
    """Weights, and the current inputs and outputs."""

    inputs: np.ndarray  # (N,) stretched probabilities
    weights: np.ndarray  # (rows, N) weights of the first layer, in multiples of 2^-16: all tables of all neurons
    rows: np.ndarray  # (K,) current row of each neuron
    outputs: np.ndarray  # (K,) stretched probabilities of the first layer
    last_weights: np.ndarray  # (rows, K) weights of the second layer
    last_row: np.ndarray  # (1,) its current row
    last_output: np.ndarray  # (1,) its stretched probability
    time: np.ndarray  # (1,) number of bits learnt
    rates: np.ndarray  # (5,) in multiples of 2^-14: η∞ and η0 of the first layer and of the second; and τ in bits


def make_mixer(beginning: np.ndarray, rows: int, neurons: int, last_rows: int, rates: tuple[int, ...]) -> Mixer:
    """Create a mixer of N inputs with initial weights `beginning` (N,), and an average as the second layer."""
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
    step = np.int32(((bit << 16) - squash(output)) * rate)  # 32-bit factors, so that products are vectorised
    for i in range(len(inputs)):
        weights[i] += (inputs[i] * step + (1 << _RATE_BITS - 1)) >> _RATE_BITS


@compiled
def mix(mixer: Mixer) -> int:
    """Return the stretched probability of the inputs under the selected rows."""
    inputs, weights, rows, outputs = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs
    for k in range(len(rows)):
        outputs[k] = _dot(weights[rows[k]], inputs)
    stretched = _dot(mixer.last_weights[mixer.last_row[0]], outputs)
    mixer.last_output[0] = stretched
    return stretched


@compiled
def update(mixer: Mixer, bit: int) -> None:
    """Take a step of gradient descent in the selected rows."""
    inputs, weights, rows, outputs, rates = mixer.inputs, mixer.weights, mixer.rows, mixer.outputs, mixer.rates
    falling = (rates[4] << 16) // (rates[4] + mixer.time[0])
    rate = rates[0] + (rates[1] * falling >> 16)
    for k in range(len(rows)):
        _descend(weights[rows[k]], inputs, outputs[k], bit, rate)
    rate = rates[2] + (rates[3] * falling >> 16)
    _descend(mixer.last_weights[mixer.last_row[0]], outputs, mixer.last_output[0], bit, rate)
    mixer.time[0] += 1
