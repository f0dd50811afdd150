"""The parts of the adaptive model against what their docstrings say."""

import math

import numpy as np
import pytest

from chainrule.coding.adaptive import _contexts as contexts
from chainrule.coding.adaptive import _mixer as mixer
from chainrule.coding.adaptive import _probabilities as counters
from chainrule.coding.adaptive import _probabilities as logistic
from chainrule.coding.adaptive import _probabilities as refinement

RNG = np.random.default_rng(1)


def test_squash_is_the_logistic_function_and_stretch_its_inverse():
    x = np.arange(-logistic.LIMIT, logistic.LIMIT + 1)
    exact = 65536 / (1 + np.exp(-x / 256))
    assert np.abs(logistic.SQUASH - exact.clip(1, 65535)).max() <= 0.5
    p = np.arange(4096) * 16 + 8
    assert np.abs(logistic.SQUASH[logistic.STRETCH + logistic.LIMIT] - p).max() < 65536 / 4 / 256  # a step of x


def after(bits):
    state = 0
    for bit in bits:
        state = int(contexts.NEXT[state, bit])
    return state


def test_a_history_keeps_the_order_of_the_first_bits():
    states = {after([n >> k & 1 for k in range(length)]) for length in range(5) for n in range(2**length)}
    assert len(states) == 31


def test_a_contradiction_makes_a_history_forget():
    sure, shaken = after([0] * 30), after([0] * 30 + [1])
    assert contexts.SEEN[sure] == 30
    assert contexts.SEEN[shaken] < 8
    assert contexts.BEGINNING[sure] < contexts.BEGINNING[shaken] < 32768


def test_a_counter_is_the_share_of_ones_and_comes_as_near_to_certainty_as_it_can_tell():
    bits = (RNG.random(500) < 0.3).astype(int)
    table = np.zeros(2, np.int32)
    for seen in bits.tolist():
        counters.learn(table, 0, seen, 1020)
    estimate = counters.probability(table[0]) / 65536
    assert estimate == pytest.approx((bits.sum() + 0.25) / (len(bits) + 0.5), abs=1e-3)  # 1/2 a bit of each before
    for _ in range(20_000):
        counters.learn(table, 1, 1, 1020)
    assert counters.probability(table[1]) == 65535


def test_the_mixer_descends_the_gradient_of_the_cost():
    inputs, rows, neurons = 6, 3, 2
    net = mixer.make_mixer(np.zeros(inputs), rows, neurons, 2, (200, 0, 100, 0, 1))
    net.inputs[:] = RNG.integers(-900, 900, inputs)
    net.weights[:] = RNG.integers(-30000, 30000, (rows, inputs))
    net.last_weights[:] = RNG.integers(10000, 50000, (2, neurons))
    net.rows[:] = [2, 0]
    net.last_row[0] = 1
    weights, last = net.weights / mixer.ONE, net.last_weights / mixer.ONE
    x = net.inputs / 256

    mixer.mix(net)
    hidden = weights[net.rows] @ x
    assert net.outputs / 256 == pytest.approx(hidden, abs=1 / 128)
    assert net.last_output[0] / 256 == pytest.approx(last[1] @ hidden, abs=1 / 64)
    mixer.update(net, 1)

    def cost(w, inputs):
        return math.log1p(math.exp(-w @ inputs))  # -ln p of a one

    def gradient(w, inputs):
        steps = 1e-5 * np.eye(len(w))
        return np.array([cost(w + step, inputs) - cost(w - step, inputs) for step in steps]) / 2e-5

    moved = net.weights / mixer.ONE - weights
    for row in net.rows:
        assert moved[row] == pytest.approx(-200 / 2**14 * gradient(weights[row], x), abs=2e-4)
    assert not moved[1].any()
    moved = net.last_weights / mixer.ONE - last
    assert moved[1] == pytest.approx(-100 / 2**14 * gradient(last[1], hidden), abs=2e-4)
    assert not moved[0].any()


def test_a_map_begins_as_the_identity_and_learns_what_comes():
    table = refinement.make_map(2)
    for stretched in (-3000, -700, 0, 63, 2500):
        exact = 65536 / (1 + math.exp(-stretched / 256))
        assert refinement.refine(table, 1, stretched) == pytest.approx(exact, rel=0.05, abs=2)  # by straight lines
    for _ in range(300):
        refinement.update(table, 1, 0, 1)
    assert refinement.refine(table, 1, 0) > 60000
    assert refinement.refine(table, 0, 0) == pytest.approx(32768, abs=2)
